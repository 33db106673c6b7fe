"""An external scaler for KEDA: what a plan wants, asked for over gRPC.

A ScaledObject names its workload in the metadata of its trigger (`plan export --format keda-scaler`). The
metric is the number of replicas and its target 1, so that KEDA's autoscaler holds just as many. Every answer
tells its state, its reason and its decision_id as trailing metadata; a change of state is also told aloud.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import grpc

from fleetcast.assets.plans.current_plan import CurrentPlan, ReplicaTarget, WorkloadKey
from fleetcast.assets.plans.keda_messages import MESSAGE_CLASSES, grpc_handlers

REFRESH_S = 10.0  # so long may pass until a new plan is served
STREAM_S = 5.0  # between two looks of a stream
TRIGGER_KEYS = ("region", "llm", "gpu", "gpusPerInstance", "role")
GrpcContext = Any  # grpc.aio.ServicerContext; the package has no types


class KedaScaler:
    """Answers the calls of externalscaler.proto from what is served; `say` is told of changes of state."""

    def __init__(self, served: CurrentPlan, say: Callable[[str], None]) -> None:
        self.served, self.say = served, say
        self._states: dict[WorkloadKey, tuple[str, str]] = {}

    async def is_active(self, request: Any, context: GrpcContext) -> Any:
        """Whether any replica is wanted."""
        held = await self._held(request, context)
        return MESSAGE_CLASSES["IsActiveResponse"](result=held.replicas > 0)

    async def stream_is_active(self, request: Any, context: GrpcContext) -> AsyncIterator[Any]:
        """The same, at once and whenever it changes."""
        last: bool | None = None
        while True:
            is_active = (await self._held(request, context)).replicas > 0
            if is_active != last:
                yield MESSAGE_CLASSES["IsActiveResponse"](result=is_active)
            last = is_active
            await asyncio.sleep(STREAM_S)

    async def metric_spec(self, request: Any, context: GrpcContext) -> Any:
        """One metric, whose value is the number of replicas."""
        await self._held(request, context)
        spec = MESSAGE_CLASSES["MetricSpec"](metricName="fleetcast", targetSize=1, targetSizeFloat=1.0)
        return MESSAGE_CLASSES["GetMetricSpecResponse"](metricSpecs=[spec])

    async def metrics(self, request: Any, context: GrpcContext) -> Any:
        """How many replicas are wanted now."""
        held = await self._held(request.scaledObjectRef, context)
        value = MESSAGE_CLASSES["MetricValue"](
            metricName=request.metricName, metricValue=held.replicas, metricValueFloat=float(held.replicas)
        )
        return MESSAGE_CLASSES["GetMetricsResponse"](metricValues=[value])

    async def _held(self, ref: Any, context: GrpcContext) -> ReplicaTarget:
        try:
            key, floor = parse_trigger(ref.name, dict(ref.scalerMetadata), self.served.policy)
            held = self.served.held(key, floor)
        except ValueError as error:
            self.say(f"{ref.namespace}/{ref.name}: refused: {error}")
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        told = (held.state, held.why, held.decision_id)
        names = ("fleetcast-state", "fleetcast-why", "fleetcast-decision")
        context.set_trailing_metadata(tuple(zip(names, told, strict=True)))
        if self._states.get(key) != told[:2]:
            self._states[key] = (held.state, held.why)
            why = f": {held.why}" if held.why else ""
            now = f"{self.served.now():%Y-%m-%d %H:%M}"
            self.say(f"{now}  {ref.namespace}/{ref.name}  {held.state} {held.replicas}{why}")
        return held


def parse_trigger(name: str, metadata: Mapping[str, str], policy: str) -> tuple[WorkloadKey, int | None]:
    """The workload and the floor that a trigger names; ValueError says what is wrong with it."""
    if lacking := [key for key in TRIGGER_KEYS if not metadata.get(key)]:
        raise ValueError(
            f"The trigger of {name!r} lacks {', '.join(lacking)}. "
            "Write it by fleetcast plan export --format keda-scaler."
        )
    if metadata.get("policy", policy) != policy:
        raise ValueError(
            f"The trigger of {name!r} follows the plan of {metadata['policy']}; this scaler serves that of "
            f"{policy}. Start it with --policy {metadata['policy']}."
        )
    for key in ("gpusPerInstance", "floor"):
        if not (given := metadata.get(key, "0")).isdecimal():
            raise ValueError(
                f"The trigger of {name!r} has {key} {given!r}; it must be a whole number from 0."
            )
    region, llm, gpu, gpus, role = (metadata[key] for key in TRIGGER_KEYS)
    floor = metadata.get("floor")
    return (region, llm, gpu, int(gpus), role), None if floor is None else int(floor)


async def run_scaler_server(scaler: KedaScaler, address: str, is_ready: Callable[[int], None]) -> None:
    """Answer at HOST:PORT until cancelled; `is_ready` is told the port, which the system chooses for 0."""
    server = grpc.aio.server(options=(("grpc.so_reuseport", 0),))
    answers = {
        "IsActive": scaler.is_active,
        "StreamIsActive": scaler.stream_is_active,
        "GetMetricSpec": scaler.metric_spec,
        "GetMetrics": scaler.metrics,
    }
    server.add_generic_rpc_handlers((grpc_handlers(answers),))
    scaler.served.refresh()
    try:
        port = server.add_insecure_port(address)
    except RuntimeError as error:
        raise ValueError(
            f"Cannot listen on {address}: it is taken or no address of this machine. "
            "Choose another --address HOST:PORT."
        ) from error
    await server.start()
    is_ready(port)
    try:
        while True:
            await asyncio.sleep(REFRESH_S)
            try:
                await asyncio.to_thread(scaler.served.refresh)
            except (ValueError, OSError) as error:
                scaler.say(f"The lake cannot be read, the last plan is kept: {error}")
    finally:
        await server.stop(grace=0.5)
