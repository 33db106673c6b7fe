"""Sample the requests that reach each llm: the token lengths that capacity is measured with."""

from collections.abc import Sequence
from datetime import date
from typing import NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from fleetcast.assets.lake.settings import RunSettings
from fleetcast.assets.plans.quality_answers import AnswerSampler, find_known_answers
from fleetcast.models.replay.session.legs import choose_answers
from fleetcast.models.world.cascades import stages_per_request

MixTokens = NDArray[np.int32]
MIX_SAMPLE = 20_000  # largest number of requests in the sample of an llm
MOST_KEPT_SAMPLES = 32
KEPT_SAMPLES: dict[tuple[object, ...], pd.DataFrame] = {}  # of _token_sample, by what it depends on


class RequestMix(NamedTuple):
    """A sample of the requests that reach an llm; arrays have shape (requests,)."""

    input_tokens: MixTokens
    output_tokens: MixTokens
    cached_tokens: MixTokens | None  # input tokens that come from the prefix cache; None without one
    prompt_token_ratio: float = 1.0  # mean input tokens of the users' prompts, over the mean of input_tokens
    tier_names: NDArray[np.object_] | None = None  # tier of each request; None: all are of the strictest

    @property
    def tiers(self) -> tuple[str, ...]:
        """Return the tiers of these requests, by name."""
        return () if self.tier_names is None else tuple(sorted(set(self.tier_names)))


def token_mixes(settings: RunSettings, day: date) -> dict[str, RequestMix]:
    """Return a sample of interactive requests for each llm that serves any.

    The sample is of the last day before `day` that has interactive requests. Where no day has any, it is of
    the last day with requests of any tier.
    """
    there = set(settings.lake.days("requests", settings.trace))
    past = [before for before in reversed(settings.history(day)) if before in there]
    tier_sets = (settings.catalogue.interactive_tiers, tuple(settings.catalogue.tiers))
    samples = ((before, _token_sample(settings, before, tiers)) for tiers in tier_sets for before in past)
    none = day, _token_sample(settings, day, ())
    before, sample = next((found for found in samples if not found[1].empty), none)
    requested = {str(name): frame for name, frame in sample.groupby("llm")}
    stages = {name: stage_requests_by_llm(settings, before, name, frame) for name, frame in requested.items()}
    mixes = {}
    stage_shares = stages_per_request(settings.catalogue, settings.config.replay.cascades).T
    for llm, shares in zip(settings.catalogue.llms, stage_shares, strict=True):
        counts = {
            name: share * requested[name]["requests"].iloc[0]
            for name, share in zip(settings.catalogue.llms, shares, strict=True)
            if share > 0 and name in requested and len(stages[name][llm])
        }
        scale = min((len(stages[name][llm]) / count for name, count in counts.items()), default=0.0)
        parts = [stages[name][llm].head(round(count * scale)) for name, count in counts.items()]
        mix = pd.concat(parts) if parts else sample  # an llm without requests gets the mix of all llms
        names = ("input_tokens", "output_tokens", "cached_tokens")
        inputs, outputs, cached = (mix[name].to_numpy(np.int32) for name in names)
        prompts = [requested[name]["input_tokens"].mean() * count for name, count in counts.items()]
        ratio = sum(prompts) / sum(counts.values()) / inputs.mean() if parts and inputs.any() else 1.0
        has_cache = settings.config.fleet.prefix != "none"
        tiers = mix["tier"].to_numpy()
        mixes[llm] = RequestMix(inputs, outputs, cached if has_cache else None, float(ratio), tiers)
    return mixes


def stage_requests_by_llm(
    settings: RunSettings, day: date, requested_llm: str, sample: pd.DataFrame
) -> dict[str, pd.DataFrame]:
    """Return the requests that reach each llm as stages of the requests for one llm.

    Each llm gets the whole sample, except where the answers are known (then only the stages that take place)
    and for a deployed judge (then the drafts). `sample` is `_token_sample` of one llm.
    """
    cascade = settings.config.replay.cascades.get(requested_llm)
    if cascade is None:
        return {requested_llm: sample}
    inputs, outputs = (sample[name].to_numpy() for name in ("input_tokens", "output_tokens"))
    known = find_known_answers(settings, day, pa.Table.from_pandas(sample, preserve_index=False))
    answers = AnswerSampler(settings, day, known, inputs, outputs).answers(cascade, np.arange(len(sample)))
    if known is not None and known.has_answers(cascade.llms, np.arange(len(sample))):
        reached = choose_answers(cascade, answers).reached
        stages = {
            llm: sample.assign(output_tokens=answers.output_tokens[:, place])[reached[:, place]]
            for place, llm in enumerate(cascade.llms)
        }
    else:
        reached = np.ones(answers.output_tokens.shape, bool)
        stages = dict.fromkeys(cascade.llms, sample)
    if cascade.judge_llm is not None:
        drafts = [
            sample.assign(
                input_tokens=inputs + answers.output_tokens[:, place] + cascade.rubric_tokens, output_tokens=1
            )[reached[:, place]]
            for place, share in enumerate(cascade.escalation_shares)
            if share > 0
        ]
        stages[cascade.judge_llm] = pd.concat(drafts) if drafts else sample.head(0)
    return stages


def _token_sample(settings: RunSettings, day: date, tiers: Sequence[str]) -> pd.DataFrame:
    """Return up to MIX_SAMPLE requests of each llm, with tokens, app, query and the llm's request count.

    A board needs the same days in every trial, so samples are kept by the content of the day's requests.
    """
    fleet = settings.config.fleet
    content = settings.lake.content("requests", trace=settings.trace, day=day)
    key = content, tuple(tiers), fleet.prefix, fleet.prefix_block_tokens
    sample = KEPT_SAMPLES.get(key)
    if sample is None:
        rows = settings.lake.sql(
            "reads/token_mix.sql",
            trace=settings.trace,
            day=day,
            tiers=list(tiers),
            size=MIX_SAMPLE,
            prefix=fleet.prefix,
            block=fleet.prefix_block_tokens,
        )
        if len(KEPT_SAMPLES) >= MOST_KEPT_SAMPLES:
            KEPT_SAMPLES.clear()
        sample = KEPT_SAMPLES[key] = rows.to_pandas()
    return sample
