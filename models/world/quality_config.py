"""Which llms may answer each other's requests, as a config says it: [quality]."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from fleetcast.models.world.toml_dataclasses import KnownName, Range, Share

QUALITY_RULES = ("cascade", "route", "both")
SCORE = "score"  # of answers: what measures quality where no judge is named


@dataclass(frozen=True)
class QualityConfig:
    """A service that any of its llms may answer, and on what it may run."""

    llms: tuple[str, ...]  # from the smallest to the largest
    tier: str  # whose requests they are
    requests_per_s: Annotated[float, Range(0, 1_000_000, is_above=True)]
    gpus: Mapping[str, Annotated[int, Range(0, 100_000)]]  # that there are, by type
    answers: str = "mmlu_pro"  # of quality.toml
    judge: str = "learned"  # of quality.toml: who sends on, or routes
    judge_llm: str | None = (
        None  # of ours, that is this judge; None: a service outside, of seconds and a price
    )
    rubric_tokens: Annotated[int, Range(0, 1_000_000)] = 200  # that it reads besides prompt and answer
    shadow_share: Share = 0.0  # of the requests, that all llms answer so that the scores stay known
    measured_by: str = SCORE  # of answers that landed: this, or a judge of theirs who does not route
    rule: Annotated[str, KnownName("rule", QUALITY_RULES)] = "both"
    tensor_parallel: tuple[Annotated[int, Range(1, 1024)], ...] = (1, 2, 4, 8)
    pipeline_parallel: tuple[Annotated[int, Range(1, 64)], ...] = (1,)
    points: Annotated[int, Range(2, 10_000)] = 25  # of the grid of thresholds
    requests: Annotated[int, Range(1_000, 1_000_000)] = 20_000  # of a replay
    replays: Annotated[int, Range(1, 10_000)] = 60  # of plans, before one is chosen
    quality: Annotated[float, Range(0, 1, is_above=True)] | None = None  # asked of the plans of a night
    latency_s: Annotated[float, Range(0, 1_000_000, is_above=True)] | None = None  # P95, likewise
