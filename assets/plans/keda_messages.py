"""The messages of KEDA's external scaler, and their service as gRPC handlers.

The contract is externalscaler.proto of kedacore/keda (pkg/scalers/externalscaler, proto3, package
externalscaler). This file lists the names, numbers and types of its fields; protobuf builds the classes.
The optional StreamMetricSpec is left out, because the target of the served metric never changes.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

PACKAGE = "externalscaler"
SERVICE = f"{PACKAGE}.ExternalScaler"
# Fields of each message as (name, number, type); a type in brackets is repeated, "map" is string to string.
MESSAGES: Mapping[str, tuple[tuple[str, int, str], ...]] = {
    "ScaledObjectRef": (("name", 1, "string"), ("namespace", 2, "string"), ("scalerMetadata", 3, "map")),
    "IsActiveResponse": (("result", 1, "bool"),),
    "MetricSpec": (("metricName", 1, "string"), ("targetSize", 2, "int64"), ("targetSizeFloat", 3, "double")),
    "GetMetricSpecResponse": (("metricSpecs", 1, "[MetricSpec]"),),
    "GetMetricsRequest": (("scaledObjectRef", 1, "ScaledObjectRef"), ("metricName", 2, "string")),
    "MetricValue": (
        *(("metricName", 1, "string"), ("metricValue", 2, "int64")),
        ("metricValueFloat", 3, "double"),
    ),
    "GetMetricsResponse": (("metricValues", 1, "[MetricValue]"),),
}
# Each call as (request type, response type, whether the response is a stream).
CALLS: Mapping[str, tuple[str, str, bool]] = {
    "IsActive": ("ScaledObjectRef", "IsActiveResponse", False),
    "StreamIsActive": ("ScaledObjectRef", "IsActiveResponse", True),
    "GetMetricSpec": ("ScaledObjectRef", "GetMetricSpecResponse", False),
    "GetMetrics": ("GetMetricsRequest", "GetMetricsResponse", False),
}
_Field = descriptor_pb2.FieldDescriptorProto


def _add_field(message: Any, name: str, number: int, kind: str) -> None:
    field = message.field.add(name=name, number=number, label=_Field.LABEL_OPTIONAL)
    if kind == "map":
        entry = message.nested_type.add(name=f"{name[0].upper()}{name[1:]}Entry")
        entry.options.map_entry = True
        _add_field(entry, "key", 1, "string")
        _add_field(entry, "value", 2, "string")
        kind = f"[{message.name}.{entry.name}]"
    if kind.startswith("["):
        field.label, kind = _Field.LABEL_REPEATED, kind[1:-1]
    if kind[0].isupper():
        field.type, field.type_name = _Field.TYPE_MESSAGE, f".{PACKAGE}.{kind}"
    else:
        field.type = getattr(_Field, f"TYPE_{kind.upper()}")


def _classes() -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(name="externalscaler.proto", package=PACKAGE, syntax="proto3")
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        for field in fields:
            _add_field(message, *field)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{name}"))
        for name in MESSAGES
    }


MESSAGE_CLASSES = _classes()


def grpc_handlers(methods: Mapping[str, Callable[..., Any]]) -> grpc.GenericRpcHandler:
    """Return the gRPC handlers of the calls; a method is a coroutine, or an asynchronous generator.

    A request that is no message of the call is answered INVALID_ARGUMENT.
    """
    handlers = {}
    for call, (request, response, is_stream) in CALLS.items():
        make = grpc.unary_stream_rpc_method_handler if is_stream else grpc.unary_unary_rpc_method_handler
        handlers[call] = make(
            (_checked_stream if is_stream else _checked_call)(methods[call], request),
            request_deserializer=partial(_parse, MESSAGE_CLASSES[request]),
            response_serializer=MESSAGE_CLASSES[response].SerializeToString,
        )
    return grpc.method_handlers_generic_handler(SERVICE, handlers)


def _parse(message: Any, content: bytes) -> Any:
    """Return the message of these bytes; None if they are none, since gRPC would answer INTERNAL."""
    try:
        return message.FromString(content)
    except DecodeError:
        return None


def _checked_call(method: Callable[..., Any], name: str) -> Callable[..., Any]:
    async def call(request: Any, context: Any) -> Any:
        await _require_message(request, name, context)
        return await method(request, context)

    return call


def _checked_stream(method: Callable[..., Any], name: str) -> Callable[..., Any]:
    async def call(request: Any, context: Any) -> Any:
        await _require_message(request, name, context)
        async for response in method(request, context):
            yield response

    return call


async def _require_message(request: Any, name: str, context: Any) -> None:
    if request is None:
        await context.abort(
            grpc.StatusCode.INVALID_ARGUMENT, f"The request is no {name} of KEDA's externalscaler.proto."
        )
