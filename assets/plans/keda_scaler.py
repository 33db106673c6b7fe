"""Serve replicas to KEDA as an external scaler over gRPC: those of a plan, or of a rule on metrics.

A ScaledObject names its workload in the metadata of its trigger (`plan export --format keda-scaler`). The
metric is the number of replicas and its target is 1, so KEDA's autoscaler scales to that number. Every
response has its state, reason and decision_id as trailing metadata; a change of state is logged as well.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, Protocol

import grpc

from fleetcast.assets.plans.current_plan import MEASURED_STATE, ReplicaTarget, WorkloadKey
from fleetcast.assets.plans.hpa_steps import STEP_MINUTES, current_request
from fleetcast.assets.plans.keda_messages import MESSAGE_CLASSES, grpc_handlers
from fleetcast.models.world.toml_dataclasses import shorten_text

REFRESH_S = 10.0  # seconds between two reads of the lake: the longest delay of a new plan
STREAM_S = 5.0  # seconds between two checks of a stream
TRIGGER_KEYS = ("region", "llm", "gpu", "gpusPerInstance", "role")
MAX_NAME_CHARACTERS = 253  # as of names in Kubernetes
MAX_TRIGGER_COUNT = 100_000  # GPUs, replicas
MAX_REQUEST_BYTES = 1 << 18
GrpcContext = Any  # grpc.aio.ServicerContext; the package has no types


class ReplicaSource(Protocol):
    """What decides the replicas: a plan in the lake, or a rule on the metrics of now."""

    trace: str
    policy: str
    now: Callable[[], datetime]

    def refresh(self) -> bool:
        """Read again what the replicas depend on; ValueError or OSError where the lake cannot be read."""

    def replica_target(
        self, key: WorkloadKey, floor: int | None, moment: datetime | None = None
    ) -> ReplicaTarget:
        """Return the target of a workload at a moment of the last STEP_MINUTES, by default now.

        ValueError for a workload that the config does not deploy.
        """


class KedaScaler:
    """Serves the calls of externalscaler.proto; `log` gets a line for every change of state."""

    def __init__(self, source: ReplicaSource, log: Callable[[str], None]) -> None:
        self.source, self.log = source, log
        self.lake_error = ""  # why the last read of the lake failed; "" after one that did not
        self._states: dict[WorkloadKey, tuple[str, str, int | None]] = {}

    async def is_active(self, request: Any, context: GrpcContext) -> Any:
        """Answer IsActive: whether the plan has any replica now."""
        target = await self._replica_target(request, context)
        return MESSAGE_CLASSES["IsActiveResponse"](result=target.replicas > 0)

    async def stream_is_active(self, request: Any, context: GrpcContext) -> AsyncIterator[Any]:
        """Answer StreamIsActive: the same as IsActive, at once and on every change."""
        last: bool | None = None
        while True:
            is_active = (await self._replica_target(request, context)).replicas > 0
            if is_active != last:
                yield MESSAGE_CLASSES["IsActiveResponse"](result=is_active)
            last = is_active
            await asyncio.sleep(STREAM_S)

    async def metric_spec(self, request: Any, context: GrpcContext) -> Any:
        """Answer GetMetricSpec: one metric, whose value is the number of replicas."""
        await self._replica_target(request, context)
        spec = MESSAGE_CLASSES["MetricSpec"](metricName="fleetcast", targetSize=1, targetSizeFloat=1.0)
        return MESSAGE_CLASSES["GetMetricSpecResponse"](metricSpecs=[spec])

    async def metrics(self, request: Any, context: GrpcContext) -> Any:
        """Answer GetMetrics: the number of replicas that the plan has now, past the HPA's tolerance."""
        ref = request.scaledObjectRef
        recent = [(await self._replica_target(ref, context, request.metricName)).replicas]
        if ref.scalerMetadata.get("exactSteps") == "true":
            key, floor = parse_trigger(ref.name, dict(ref.scalerMetadata), self.source)
            recent = recent_replicas(self.source, key, floor)
        requested = current_request(recent, float(ref.scalerMetadata.get("tolerance", "0")))
        value = MESSAGE_CLASSES["MetricValue"](
            metricName=request.metricName,
            metricValue=requested,
            metricValueFloat=float(requested),
        )
        return MESSAGE_CLASSES["GetMetricsResponse"](metricValues=[value])

    async def _replica_target(self, ref: Any, context: GrpcContext, metric_name: str = "") -> ReplicaTarget:
        try:
            for field in ("name", "namespace"):
                require_name(getattr(ref, field), field)
            require_name(metric_name, "metricName")
            key, floor = parse_trigger(ref.name, dict(ref.scalerMetadata), self.source)
            target = self.source.replica_target(key, floor)
        except ValueError as error:
            self.log(f"{escape_name(ref.namespace)}/{escape_name(ref.name)}: refused: {error}")
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        values = (target.state, target.why, target.decision_id)
        names = ("fleetcast-state", "fleetcast-why", "fleetcast-decision")
        context.set_trailing_metadata(tuple(zip(names, values, strict=True)))
        state = (target.state, target.why, target.replicas if target.state == MEASURED_STATE else None)
        if self._states.get(key) != state:
            self._states[key] = state
            why = f": {target.why}" if target.why else ""
            now = f"{self.source.now():%Y-%m-%d %H:%M}"
            self.log(f"{now}  {ref.namespace}/{ref.name}  {target.state} {target.replicas}{why}")
        return target


def recent_replicas(source: ReplicaSource, key: WorkloadKey, floor: int | None) -> list[int]:
    """Return the replicas of a workload now and at each of the last STEP_MINUTES, as is known now."""
    now = source.now()
    moments = [now - timedelta(minutes=back) for back in range(STEP_MINUTES + 1)]
    return [source.replica_target(key, floor, moment).replicas for moment in moments]


def escape_name(text: str) -> str:
    """Return a name that a client gave as the part of one line, cut and without control characters."""
    return shorten_text(text).encode("unicode_escape").decode()


def require_name(text: str, field: str) -> None:
    """Raise a ValueError for a name that is too long, or that would not stay on one line."""
    if len(text) > MAX_NAME_CHARACTERS or not text.isprintable():
        raise ValueError(
            f"{field} is {shorten_text(repr(text))}, of {len(text):,} characters; needed at most "
            f"{MAX_NAME_CHARACTERS}, all printable. Write it by fleetcast plan export --format keda-scaler."
        )


def parse_trigger(
    name: str, metadata: Mapping[str, str], source: ReplicaSource
) -> tuple[WorkloadKey, int | None]:
    """Return the workload and the floor that a trigger names.

    ValueError where it is invalid, or of another trace or policy than the source; one written by hand may
    have neither.
    """
    if missing := [key for key in TRIGGER_KEYS if not metadata.get(key)]:
        raise ValueError(
            f"The trigger of {name!r} lacks {', '.join(missing)}. "
            "Write it by fleetcast plan export --format keda-scaler."
        )
    for field in (*TRIGGER_KEYS, "trace", "policy", "floor"):
        require_name(metadata.get(field, ""), field)
    if metadata.get("trace", source.trace) != source.trace:
        raise ValueError(
            f"The trigger of {name!r} follows the trace {metadata['trace']!r}; this scaler serves "
            f"{source.trace!r}. Start it with the --config of that trace."
        )
    if metadata.get("policy", source.policy) != source.policy:
        raise ValueError(
            f"The trigger of {name!r} follows the plan of {metadata['policy']}; this scaler serves that of "
            f"{source.policy}. Start it with --policy {metadata['policy']}."
        )
    for key in ("gpusPerInstance", "floor"):
        value = metadata.get(key, "0")
        if not (
            value.isascii() and value.isdecimal() and len(value) < 10 and int(value) <= MAX_TRIGGER_COUNT
        ):
            raise ValueError(
                f"The trigger of {name!r} has {key} {shorten_text(repr(value))}; "
                f"it must be a whole number from 0 to {MAX_TRIGGER_COUNT:,}."
            )
    if not re.fullmatch(r"0(\.\d{1,6})?", tolerance := metadata.get("tolerance", "0")):
        raise ValueError(
            f"The trigger of {name!r} has tolerance {shorten_text(repr(tolerance))}; it must be from 0 to "
            "below 1, with at most 6 decimals."
        )
    region, llm, gpu, gpus, role = (metadata[key] for key in TRIGGER_KEYS)
    floor = metadata.get("floor")
    return (region, llm, gpu, int(gpus), role), None if floor is None else int(floor)


async def run_scaler_server(scaler: KedaScaler, address: str, is_ready: Callable[[int], None]) -> None:
    """Serve at HOST:PORT until cancelled; `is_ready` is called with the port (the system's choice for 0).

    ValueError where the address cannot be bound.
    """
    limit = ("grpc.max_receive_message_length", MAX_REQUEST_BYTES)
    server = grpc.aio.server(options=(("grpc.so_reuseport", 0), limit))
    methods = {
        "IsActive": scaler.is_active,
        "StreamIsActive": scaler.stream_is_active,
        "GetMetricSpec": scaler.metric_spec,
        "GetMetrics": scaler.metrics,
    }
    server.add_generic_rpc_handlers((grpc_handlers(methods),))
    await _refresh_plan(scaler)
    try:
        port = server.add_insecure_port(address)
    except RuntimeError as error:
        raise ValueError(
            f"Cannot listen on {address}: it is in use or is not an address of this machine. "
            "Choose another --address HOST:PORT."
        ) from error
    await server.start()
    is_ready(port)
    try:
        while True:
            await asyncio.sleep(REFRESH_S)
            await _refresh_plan(scaler)
    finally:
        await server.stop(grace=0.5)


async def _refresh_plan(scaler: KedaScaler) -> None:
    """Read the plan again; a lake that is away is logged once, and the last plan stays in use."""
    why = ""
    try:
        await asyncio.to_thread(scaler.source.refresh)
    except (ValueError, OSError) as error:
        why = f"The lake cannot be read; the last plan stays in use: {error}"
    if why != scaler.lake_error:
        scaler.log(why or "The lake can be read again.")
    scaler.lake_error = why
