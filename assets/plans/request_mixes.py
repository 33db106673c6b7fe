"""What requests are like, by the llm that answers: the sample that capacity is measured with."""

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
MIX_SAMPLE = 20_000  # requests that stand for an llm's token mix


class RequestMix(NamedTuple):
    """A sample of requests, each of shape (requests,)."""

    input_tokens: MixTokens
    output_tokens: MixTokens
    cached_tokens: MixTokens | None  # of the inputs, what need not be computed; None where nothing is reused
    prompt_token_ratio: float = 1.0  # mean input tokens of what is asked, over those that are read here
    tiers: tuple[str, ...] = ()  # that ask for it


def token_mixes(settings: RunSettings, day: date) -> dict[str, RequestMix]:
    """A sample of interactive requests, per llm that answers.

    They are those of the last day before `day` that has any; of the held tiers, where no day has.
    """
    there = set(settings.lake.days("requests", settings.trace))
    past = [before for before in reversed(settings.history(day)) if before in there]
    tried = (settings.catalogue.interactive_tiers, tuple(settings.catalogue.tiers))
    samples = ((before, _token_sample(settings, before, tiers)) for tiers in tried for before in past)
    none = day, _token_sample(settings, day, ())
    before, sample = next((one for one in samples if not one[1].empty), none)
    asked = {str(name): frame for name, frame in sample.groupby("llm")}
    legs = {name: stage_requests_by_llm(settings, before, name, frame) for name, frame in asked.items()}
    mixes = {}
    shares_of = stages_per_request(settings.catalogue, settings.config.replay.cascades).T
    for llm, shares in zip(settings.catalogue.llms, shares_of, strict=True):
        come = {
            name: share * asked[name]["requests"].iloc[0]
            for name, share in zip(settings.catalogue.llms, shares, strict=True)
            if share > 0 and name in asked and len(legs[name][llm])
        }
        scale = min((len(legs[name][llm]) / requests for name, requests in come.items()), default=0.0)
        own = [legs[name][llm].head(round(requests * scale)) for name, requests in come.items()]
        mix = pd.concat(own) if own else sample  # nobody asked for it yesterday: the common mix stands in
        names = ("input_tokens", "output_tokens", "cached_tokens")
        inputs, outputs, cached = (mix[name].to_numpy(np.int32) for name in names)
        prompts = [asked[name]["input_tokens"].mean() * requests for name, requests in come.items()]
        share = sum(prompts) / sum(come.values()) / inputs.mean() if own and inputs.any() else 1.0
        reuses = settings.config.fleet.prefix != "none"
        tiers = tuple(sorted(set(mix["tier"])))
        mixes[llm] = RequestMix(inputs, outputs, cached if reuses else None, float(share), tiers)
    return mixes


def stage_requests_by_llm(
    settings: RunSettings, day: date, asked: str, sample: pd.DataFrame
) -> dict[str, pd.DataFrame]:
    """What comes to each llm of the requests for one: all alike, but where answers are known or judged here.

    `sample` as `_token_sample` has it, of one llm.
    """
    cascade = settings.config.replay.cascades.get(asked)
    if cascade is None:
        return {asked: sample}
    inputs, outputs = (sample[name].to_numpy() for name in ("input_tokens", "output_tokens"))
    known = find_known_answers(settings, day, pa.Table.from_pandas(sample, preserve_index=False))
    answers = AnswerSampler(settings, day, known, inputs, outputs).answers(cascade, np.arange(len(sample)))
    if known is not None and known.has_answers(cascade.llms, np.arange(len(sample))):
        reached = choose_answers(cascade, answers).reached
        legs = {
            llm: sample.assign(output_tokens=answers.output_tokens[:, place])[reached[:, place]]
            for place, llm in enumerate(cascade.llms)
        }
    else:
        reached = np.ones(answers.output_tokens.shape, bool)
        legs = dict.fromkeys(cascade.llms, sample)
    if cascade.judge_llm is not None:
        drafts = [
            sample.assign(
                input_tokens=inputs + answers.output_tokens[:, place] + cascade.rubric_tokens, output_tokens=1
            )[reached[:, place]]
            for place, share in enumerate(cascade.escalation_shares)
            if share > 0
        ]
        legs[cascade.judge_llm] = pd.concat(drafts) if drafts else sample.head(0)
    return legs


def _token_sample(settings: RunSettings, day: date, tiers: Sequence[str]) -> pd.DataFrame:
    """At most MIX_SAMPLE requests of each llm, with their tokens, app and query, and how many it has."""
    return settings.lake.sql(
        "reads/token_mix.sql",
        trace=settings.trace,
        day=day,
        tiers=list(tiers),
        size=MIX_SAMPLE,
        prefix=settings.config.fleet.prefix,
        block=settings.config.fleet.prefix_block_tokens,
    ).to_pandas()
