"""Named tuples that compiled code passes by their address.

Numba passes a named tuple as a copy of all its members: seven numbers for each array. With some 60 arrays
that costs 30 to 70 ns a call, more than most functions of the kernel take. A class decorated with
`pass_by_address` is written to memory once for each call from Python, and compiled code passes its address.
This file uses Numba's documented interface for custom types (numba.extending, "Low-level extension API").
"""

import hashlib
from typing import Any, TypeVar

from numba.core import cgutils, types
from numba.core.typing.templates import AttributeTemplate
from numba.extending import (
    NativeValue,
    infer_getattr,
    lower_getattr_generic,
    models,
    register_model,
    typeof_impl,
    unbox,
)

Tuple = TypeVar("Tuple")


class ByAddress(types.Type):
    """Type of the address of a named tuple with members of these types."""

    def __init__(self, members: Any) -> None:
        self.members = members
        digest = hashlib.sha256(str(members).encode()).hexdigest()[:16]
        super().__init__(f"ByAddress({members.instance_class.__name__}, {digest})")


@register_model(ByAddress)
class ByAddressModel(models.PrimitiveModel):
    """Memory layout of ByAddress: a pointer to the members as Numba would hold them in registers."""

    def __init__(self, manager: Any, fe_type: ByAddress) -> None:
        super().__init__(manager, fe_type, manager.lookup(fe_type.members).get_value_type().as_pointer())


@infer_getattr
class ByAddressAttribute(AttributeTemplate):
    """Types of the members; a tuple within the tuple is passed by its address too."""

    key = ByAddress

    def generic_resolve(self, typ: ByAddress, attr: str) -> Any:  # type: ignore[override]
        fields = typ.members.fields
        if attr not in fields:
            return None
        member = typ.members.types[fields.index(attr)]
        return ByAddress(member) if isinstance(member, types.BaseNamedTuple) else member


@lower_getattr_generic(ByAddress)
def _load_member(context: Any, builder: Any, typ: ByAddress, address: Any, name: str) -> Any:
    place = typ.members.fields.index(name)
    member = cgutils.gep_inbounds(builder, address, 0, place)
    return member if isinstance(typ.members.types[place], types.BaseNamedTuple) else builder.load(member)


@unbox(ByAddress)
def _unbox(typ: ByAddress, value: Any, c: Any) -> NativeValue:
    members = c.unbox(typ.members, value)
    address = cgutils.alloca_once_value(c.builder, members.value)
    return NativeValue(address, is_error=members.is_error, cleanup=members.cleanup)


def _common(member: types.Type) -> types.Type:
    """Return one type for writable and read-only arrays. TypeError for an enum member instead of its integer:

    Numba would find the types of all members anew at each call, in milliseconds instead of microseconds.
    """
    if isinstance(member, types.IntEnumMember):
        raise TypeError(f"The kernel got a member of {member.instance_class.__name__}, needs its integer.")
    return member.copy(readonly=False) if isinstance(member, types.Array) else member


def pass_by_address(tuple_class: type[Tuple]) -> type[Tuple]:
    """Let compiled code pass named tuples of this class by their address (a class decorator)."""

    @typeof_impl.register(tuple_class)
    def _typeof(value: Any, c: Any) -> ByAddress:
        members = [_common(typeof_impl(member, c)) for member in value]
        return ByAddress(types.BaseTuple.from_types(members, tuple_class))

    return tuple_class
