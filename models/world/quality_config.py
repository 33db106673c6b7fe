"""[quality] of a config: the llms that may serve each other's requests, and the target of their quality."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from fleetcast.models.world.toml_dataclasses import KnownName, Range, Share

QUALITY_RULES = ("cascade", "route", "both")
SCORE = "score"  # the measure of quality if `measured_by` names no judge


@dataclass(frozen=True)
class QualityConfig:
    """A service whose requests any of its llms may serve, and the GPUs that it may use."""

    llms: tuple[str, ...]  # from the smallest to the largest
    tier: str  # of its requests
    requests_per_s: Annotated[float, Range(0, 1_000_000, is_above=True)]
    gpus: Mapping[str, Annotated[int, Range(0, 100_000)]]  # available GPUs by type
    answers: str = "mmlu_pro"  # of quality.toml
    judge: str = "learned"  # of quality.toml: it escalates answers, or routes requests
    judge_llm: str | None = None  # llm of the fleet that is the judge; None: external, with seconds and price
    rubric_tokens: Annotated[int, Range(0, 1_000_000)] = 200  # that the judge reads with prompt and answer
    shadow_share: Share = 0.0  # of the requests, served by all llms, so that the scores stay known
    measured_by: str = SCORE  # quality of landed answers: this column, or a judge that does not route
    rule: Annotated[str, KnownName("rule", QUALITY_RULES)] = "both"
    tensor_parallel: tuple[Annotated[int, Range(1, 1024)], ...] = (1, 2, 4, 8)
    pipeline_parallel: tuple[Annotated[int, Range(1, 64)], ...] = (1,)
    points: Annotated[int, Range(2, 10_000)] = 25  # of the grid of thresholds
    requests: Annotated[int, Range(1_000, 1_000_000)] = 20_000  # of a replay
    replays: Annotated[int, Range(1, 10_000)] = 60  # of plans, before one is chosen
    quality: Annotated[float, Range(0, 1, is_above=True)] | None = None  # required of plans of a nightly run
    latency_s: Annotated[float, Range(0, 1_000_000, is_above=True)] | None = None  # P95, likewise
