"""Named tuples that compiled code gets by their address.

Numba hands a named tuple over as a copy of all that is in it: seven numbers for each array. With some 60
arrays that costs 30 to 70 ns a call, more than most functions of the kernel take. A class under `by_address`
lies in memory once for each call from Python, and compiled code passes where. What is used here is Numba's
documented interface for types of one's own (numba.extending, "Low-level extension API").
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
    """Where a named tuple with members of these types lies."""

    def __init__(self, members: Any) -> None:
        self.members = members
        digest = hashlib.sha256(str(members).encode()).hexdigest()[:16]
        super().__init__(f"ByAddress({members.instance_class.__name__}, {digest})")


@register_model(ByAddress)
class ByAddressModel(models.PrimitiveModel):
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
def _load_member(context: Any, builder: Any, typ: ByAddress, address: Any, name: str) -> Any:
    place = typ.members.fields.index(name)
    member = cgutils.gep_inbounds(builder, address, 0, place)
    return member if isinstance(typ.members.types[place], types.BaseNamedTuple) else builder.load(member)


@unbox(ByAddress)
def _unbox(typ: ByAddress, given: Any, c: Any) -> NativeValue:
    members = c.unbox(typ.members, given)
    address = cgutils.alloca_once_value(c.builder, members.value)
    return NativeValue(address, is_error=members.is_error, cleanup=members.cleanup)


def _common(member: types.Type) -> types.Type:
    """One type for arrays that may and may not be written to, and one for numbers and codes."""
    if isinstance(member, types.IntEnumMember):
        return member.dtype
    return member.copy(readonly=False) if isinstance(member, types.Array) else member


def pass_by_address(tuple_class: type[Tuple]) -> type[Tuple]:
    """Class decorator: compiled code gets such a named tuple by its address."""

    @typeof_impl.register(tuple_class)
    def _typeof(value: Any, c: Any) -> ByAddress:
        members = [_common(typeof_impl(member, c)) for member in value]
        return ByAddress(types.BaseTuple.from_types(members, tuple_class))

    return tuple_class
