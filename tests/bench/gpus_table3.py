"""Cauchy's engine, read from its Table 3, and its link, read from its Figure 11.

The text names ShareGPT (section 4.5), the figures are those of longer requests. (E2E - TTFT) / TBT is 1,360
output tokens in all rows, and CE times price over goodput is 1,667 tokens a request where an instance has two
GPUs: LongWriter's. The batch of a decode instance then follows by Little's law, and two figures tell its
steps. They are fitted to the basic rows alone: in the opportunistic ones a part of the requests is decoded
where it was prefilled.
"""

import dataclasses
from typing import NamedTuple

import numpy as np
from measure import Figures, Target

from fleetcast.models.replay.kernel_inputs import TraceArrays
from fleetcast.models.replay.run import Schedule, replay_trace
from fleetcast.models.replay.session.rules import make_rules
from fleetcast.models.trials.capacity import fixed_fleet
from fleetcast.models.world.catalogue import load_catalogue
from fleetcast.models.world.catalogue_entries import LatencyProfile
from fleetcast.models.world.config_loading import load_config
from fleetcast.models.world.fleet_config import Deployment

CATALOGUE = load_catalogue().of_era("2023", "here")
LLM, GPU = "llama3.1-8b", "h20"
TARGETS = {
    "gpus_table3_e2e_error": Target("", "E2E of Cauchy's Table 3, basic rows, worst of 3", at_most=0.08),
    "gpus_table3_tpot_error": Target("", "its time per token, worst of 3", at_most=0.05),
    "gpus_table3_opportunistic_e2e_error": Target(
        "", "E2E of its opportunistic rows, which nothing was fitted to, worst of 3"
    ),
    "gpus_opportunism_1p1d_gain_share": Target(
        "", "mean E2E that opportunism saves at the basic rows' rates, 1P1D", at_least=0.05
    ),
    **{
        f"gpus_idle_1p{decode}d_gain_share": Target(
            "", f"mean E2E that requests on idle instances save at the basic rows' rates, 1P{decode}D"
        )
        for decode in (1, 2, 3)
    },
    "gpus_opportunism_worst_loss_share": Target("", "the most that it loses, 1P1D to 1P3D", at_most=0.01),
    "gpus_fig11_error": Target("", "Figure 11, 2,048 tokens over a full line of 25 Gb/s", at_most=0.02),
}


class Row(NamedTuple):
    """Of Table 3: what one prefill instance and some decode instances met."""

    per_s: float
    e2e_s: float
    ttft_s: float
    tbt_ms: float


BASIC = {
    1: Row(2.14, 22.03, 0.23703, 15.92),
    2: Row(2.90, 17.75, 0.23035, 12.84),
    3: Row(2.96, 14.56, 0.22155, 10.51),
}
OPPORTUNISTIC = {
    1: Row(2.32, 20.16, 0.21909, 14.74),
    2: Row(3.14, 16.38, 0.20083, 12.00),
    3: Row(3.22, 14.47, 0.22110, 10.50),
}
INPUT, OUTPUT = 337, 1360
REQUESTS = 6000
PREFILL_S, PREFILL_TOKEN_S = 0.10, 73e-6  # below the TTFT of the table, which waiting is a part of
KEEP_WEIGHTS = (1.0, 1.5, 2.0, 3.0, 5.0)


def step_ms() -> tuple[float, float]:
    """Milliseconds of a decode step, and more of each request of its batch, by Little's law."""
    batch = [row.per_s / n * (row.e2e_s - row.ttft_s) for n, row in BASIC.items()]
    per_request, alone = np.polyfit(batch, [row.tbt_ms for row in BASIC.values()], 1)
    return float(alone), float(per_request)


def played(
    decode: int, per_s: float, opportunism: str = "off", opportunism_weight: float = 1.0
) -> tuple[float, float]:
    """Mean E2E s and mean TPOT ms of one prefill instance and some that decode."""
    alone, per_request = step_ms()
    batch = np.array([1, 64, 128])
    profile = LatencyProfile(
        LLM, GPU, 2,
        (1, 8192), (PREFILL_S + PREFILL_TOKEN_S, PREFILL_S + PREFILL_TOKEN_S * 8192),
        (1, 64, 128), tuple((1e-3 * (alone + per_request * batch)).tolist()), 0.0, source="",
    )  # fmt: skip
    gpu = dataclasses.replace(CATALOGUE.gpus["h20-96gb"], link_gbit_per_s=25.0)
    world = dataclasses.replace(CATALOGUE.serving([LLM]), gpus={GPU: gpu}, latency=(profile,))
    config = load_config("sageserve", CATALOGUE)
    config = dataclasses.replace(
        config,
        fleet=dataclasses.replace(config.fleet, max_batch=256),
        replay=dataclasses.replace(
            config.replay, opportunism=opportunism, opportunism_weight=opportunism_weight
        ),
    )
    pools = [(Deployment(GPU, 2, role=role), n) for role, n in (("prefill", 1), ("decode", decode))]
    fleet = fixed_fleet({LLM: pools}, world, config)
    zero_ids = np.zeros(REQUESTS, np.int16)
    came_s = np.cumsum(np.random.default_rng(4).exponential(1 / per_s, REQUESTS))
    trace = TraceArrays(
        came_s, zero_ids, zero_ids, zero_ids, *(np.full(REQUESTS, n, np.int32) for n in (INPUT, OUTPUT))
    )
    until_s = float(came_s[-1]) + 600.0
    rules = make_rules(world, config.replay, "follow")
    outcome = replay_trace(trace, fleet, Schedule(np.diff(fleet.slots), hour_s=until_s), rules, until_s)
    steady = slice(REQUESTS // 10, -REQUESTS // 10)
    e2e_s = (outcome.finish_s - came_s)[steady]
    pace_s = (outcome.finish_s - outcome.first_token_s)[steady] / (OUTPUT - 1)
    return float(e2e_s.mean()), 1e3 * float(pace_s.mean())


def basic() -> Figures:
    """One instance that prefills and one to three that decode, at the rates of the paper's basic rows."""
    alone, per_request = step_ms()
    print(f"A step takes {alone:.2f} ms + {per_request:.3f} ms a request.")
    print("| | E2E, s | paper | TPOT, ms | paper |", "| --- | --- | --- | --- | --- |", sep="\n")
    errors = []
    for decode, row in BASIC.items():
        e2e_s, tpot_ms = played(decode, row.per_s)
        print(f"| 1P{decode}D | {e2e_s:.2f} | {row.e2e_s} | {tpot_ms:.2f} | {row.tbt_ms} |")
        errors.append((abs(e2e_s / row.e2e_s - 1), abs(tpot_ms / row.tbt_ms - 1)))
    return {
        "gpus_table3_e2e_error": max(error for error, _ in errors),
        "gpus_table3_tpot_error": max(error for _, error in errors),
    }


def opportunistic() -> Figures:
    """The same with the opportunistic path, at the basic rows' rates and at those of the paper's own rows."""
    print("| | basic | idle | unqueued | weight | weighted | at the paper's rate | paper |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    gains, idle_gains, errors = [], [], []
    for decode, row in BASIC.items():
        own, theirs = played(decode, row.per_s)[0], OPPORTUNISTIC[decode]
        idle, unqueued = (played(decode, row.per_s, way)[0] for way in ("idle", "unqueued"))
        idle_gains.append(1 - idle / own)
        by_weight = {w: played(decode, row.per_s, "weighted", w)[0] for w in KEEP_WEIGHTS}
        weight = min(by_weight, key=lambda w: by_weight[w])
        faster = played(decode, theirs.per_s, "weighted", weight)[0]
        gains.append(1 - by_weight[weight] / own)
        errors.append(abs(faster / theirs.e2e_s - 1))
        print(
            f"| 1P{decode}D | {own:.2f} | {idle:.2f} | {unqueued:.2f} | {weight:g} | "
            f"{by_weight[weight]:.2f} | {faster:.2f} | {theirs.e2e_s} |"
        )
    return {
        "gpus_table3_opportunistic_e2e_error": max(errors),
        "gpus_opportunism_1p1d_gain_share": gains[0],
        **{f"gpus_idle_1p{n}d_gain_share": gain for n, gain in zip(BASIC, idle_gains, strict=True)},
        "gpus_opportunism_worst_loss_share": max(0.0, -min(gains)),
    }


TOKENS, BULK_S, STREAMS_S = 2048, 0.625, 0.085  # Figure 11: one stream, and eight of them


def migration() -> Figures:
    """Seconds in which the cache of 2,048 tokens crosses a link: Figure 11."""
    sent = TOKENS * CATALOGUE.llms[LLM].kv_bytes_per_token
    full_s = 8 * sent / 25e9
    print(
        f"{sent / 1e6:.0f} MB: {1e3 * full_s:.1f} ms over 25 Gb/s ({1e3 * STREAMS_S:.0f} measured with eight "
        f"streams); {1e3 * BULK_S:.0f} ms with one are {8e-9 * sent / BULK_S:.1f} Gb/s."
    )
    return {"gpus_fig11_error": abs(full_s / STREAMS_S - 1)}


FUNCTIONS = (basic, opportunistic, migration)
SMALL = {"REQUESTS": 200, "KEEP_WEIGHTS": (2.0,)}
SMOKE = {"basic": SMALL, "opportunistic": SMALL, "migration": {}}
