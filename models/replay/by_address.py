"""Tuples of arrays that compiled code gets by their address.

Numba hands a named tuple over as a copy of all that is in it: seven numbers for each array, and some 170
arrays go through the kernel. To pass them at every call is slow, and to inline every call instead took 165
CPU-seconds to compile, of which 47 are left. A class under `by_address` lies in memory once for each call
from Python, and compiled code passes where.
"""

import hashlib
from typing import Any, TypeVar

from llvmlite import ir
from numba.core import cgutils, types
from numba.core.datamodel import PrimitiveModel, register_default
from numba.core.typing.templates import AttributeTemplate, infer_getattr
from numba.extending import NativeValue, lower_getattr_generic, typeof_impl, unbox

Tuple = TypeVar("Tuple")


class ByAddress(types.Type):
    """Where a named tuple with members of these types lies."""

    def __init__(self, members: Any) -> None:
        self.members = members
        digest = hashlib.sha256(str(members).encode()).hexdigest()[:16]
        super().__init__(f"ByAddress({members.instance_class.__name__}, {digest})")


@register_default(ByAddress)
class ByAddressModel(PrimitiveModel):
    """A pointer to what the members are in a register."""

    def __init__(self, manager: Any, fe_type: ByAddress) -> None:
        super().__init__(manager, fe_type, manager.lookup(fe_type.members).get_value_type().as_pointer())


@infer_getattr
class ByAddressAttribute(AttributeTemplate):
    """A member has its own type; a tuple within the tuple is known by its address too."""

    key = ByAddress

    def generic_resolve(self, typ: ByAddress, attr: str) -> Any:  # type: ignore[override]
        fields = typ.members.fields
        if attr not in fields:
            return None
        member = typ.members.types[fields.index(attr)]
        return ByAddress(member) if isinstance(member, types.BaseNamedTuple) else member


@lower_getattr_generic(ByAddress)
def _member(context: Any, builder: ir.IRBuilder, its: ByAddress, where: ir.Value, name: str) -> ir.Value:
    place = its.members.fields.index(name)
    there = cgutils.gep_inbounds(builder, where, 0, place)
    if isinstance(its.members.types[place], types.BaseNamedTuple):
        return there
    return builder.load(there)


@unbox(ByAddress)
def _unbox(its: ByAddress, given: ir.Value, c: Any) -> NativeValue:
    members = c.unbox(its.members, given)
    where = cgutils.alloca_once_value(c.builder, members.value)
    return NativeValue(where, is_error=members.is_error, cleanup=members.cleanup)


def _writable(member: types.Type) -> types.Type:
    """Arrays that may not be written to are read like all others, and codes are numbers: one type for all."""
    if isinstance(member, types.IntEnumMember):
        return member.dtype
    return member.copy(readonly=False) if isinstance(member, types.Array) else member


def by_address(tuple_class: type[Tuple]) -> type[Tuple]:
    """Class decorator: compiled code gets such a named tuple by its address."""

    @typeof_impl.register(tuple_class)
    def _typeof(value: Any, c: Any) -> ByAddress:
        members = [_writable(typeof_impl(member, c)) for member in value]
        return ByAddress(types.BaseTuple.from_types(members, tuple_class))

    return tuple_class
