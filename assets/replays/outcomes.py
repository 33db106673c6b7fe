"""What comes out of a replay of a day, as tables: its requests, and their legs."""

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from fleetcast.assets.lake.settings import RunSettings
from fleetcast.assets.replays.replay_workloads import OUTCOME_REQUEST_COLUMNS, ReplayWorkload
from fleetcast.models.aliases import Bools, Floats, Ints
from fleetcast.models.metrics import tpot_s
from fleetcast.models.replay.kernel_inputs import NO_INDEX, FleetArrays, Rules, TraceArrays
from fleetcast.models.replay.run import TAIL_PERIODS
from fleetcast.models.replay.session.legs import (
    answer_rows,
    first_leg_rows,
    leg_begin_s,
    request_indices,
    sum_legs,
)
from fleetcast.models.replay.session.outcome import Outcome
from fleetcast.models.world.calendar import DAY_S, HOUR_S
from fleetcast.models.world.mechanisms import ENDINGS, ROLES, Ending

REPLAY_END_S = DAY_S + TAIL_PERIODS * HOUR_S  # when a replay stops watching, on the day's clock


def instance_visits(trace: TraceArrays, fleet: FleetArrays, rules: Rules, outcome: Outcome) -> pd.DataFrame:
    """What instances did, one after the other: a row each, seconds on the day's clock, without network.

    request        position among the requests, in their order
    row            of the trace
    slot           the instance
    hand_over_s    what lay before it, a judge or a transfer; NaN before the first
    link_s         in which both links carried the prompt's cache from prefill to decode; NaN where none went
    came_s         into the instance's queue
    began_s        in its batch
    first_token_s  made there; NaN if it was not
    ended_s        there
    """
    rows = np.flatnonzero(outcome.slot != NO_INDEX)
    is_first = trace.leg[rows] == 0 if trace.leg.size else np.ones(rows.size, bool)
    network_s = outcome.network_s[rows]
    whole = pd.DataFrame(
        {
            "request": request_indices(trace)[rows],
            "row": rows,
            "slot": outcome.slot[rows],
            "hand_over_s": np.where(is_first, np.nan, rules.judge_s[trace.llm[rows - 1]]),
            "link_s": np.nan,
            "came_s": outcome.dispatched_s[rows],
            "began_s": outcome.admitted_s[rows],
            "first_token_s": outcome.first_token_s[rows] - network_s,
            "ended_s": outcome.finish_s[rows] - network_s,
        }
    )
    handed = outcome.sent_from[rows] != NO_INDEX
    at = rows[handed]
    sent_s, came_s = outcome.sent_s[at], outcome.came_s[at]
    sender, receiver = outcome.sent_from[at], outcome.slot[at]
    begun = whole[handed].assign(slot=sender, ended_s=sent_s)
    token_s = fleet.link_token_s[fleet.slot_kind]
    carried_s = trace.input_tokens[at] * np.maximum(token_s[sender], token_s[receiver])
    role = fleet.role[fleet.pool]
    ended = whole[handed].assign(
        hand_over_s=came_s - sent_s,
        link_s=np.where(role[sender] == role[receiver], np.nan, carried_s),
        came_s=came_s,
        began_s=outcome.joined_s[at],
        first_token_s=np.nan,
    )
    return pd.concat([whole[~handed], begun, ended]).sort_values(["row"], kind="stable", ignore_index=True)


def outcomes_table(
    settings: RunSettings, workload: ReplayWorkload, setting: tuple[FleetArrays, Rules], outcome: Outcome
) -> pa.Table:
    """One row per request: who it was, the targets it had, and what it met (seconds from its arrival)."""
    fleet, rules = setting
    table, trace = workload.requests, workload.trace
    first, kept = first_leg_rows(trace), answer_rows(trace, outcome)
    arrival_s, tier = trace.arrival_s[first], trace.tier[first]
    tiers = settings.catalogue.tiers.values()
    ttft_s, e2e_s = outcome.first_token_s[kept] - arrival_s, outcome.finish_s[kept] - arrival_s
    llms, regions = pa.array(settings.catalogue.llms), pa.array([*settings.catalogue.regions, None])
    status, slot = outcome.status[kept], outcome.slot[kept]
    answerer = (workload.answerer if workload.answerer.size else trace.llm)[kept]
    known = workload.known
    score = (
        np.full(status.size, np.nan)
        if known is None
        else known.scores_by_llm(settings.catalogue.llms, answerer)
    )
    queued_s = np.where(status == ENDINGS.index("queued"), REPLAY_END_S - arrival_s, np.nan)
    return pa.table(
        {
            **{name: table[name] for name in OUTCOME_REQUEST_COLUMNS},
            "is_held": np.array([known.is_held for known in tiers])[tier],
            "ttft_slo_s": _or_null(np.array([known.ttft_slo_s or np.nan for known in tiers])[tier]),
            "tpot_slo_s": _or_null(np.array([known.tpot_slo_s or np.nan for known in tiers])[tier]),
            "served_llm": llms.take(pa.array(answerer)),
            "served_region": regions.take(pa.array(outcome.served_region[kept] % len(regions))),
            "status": pa.array(ENDINGS).take(pa.array(status)),
            "score": _or_null(np.where(status == Ending.FINISHED, score, np.nan)),
            "ttft_s": _or_null(ttft_s),
            "tpot_s": _or_null(tpot_s(ttft_s, e2e_s, trace.output_tokens[kept])),
            "e2e_s": _or_null(e2e_s),
            "queued_s": _or_null(queued_s),
            "preemptions": sum_legs(trace, outcome.preemptions),
            "level": trace.level[first],
            "moves": sum_legs(trace, is_live_migrated(trace, fleet, outcome).astype(np.int64)),
            "stopped_s": _or_null(migration_pause_s(trace, fleet, outcome)[kept]),
            "reused_tokens": outcome.reused[kept],
            "legs": instances_per_request(workload, outcome),
            "instance": pa.array(slot, mask=slot < 0),
            **ttft_components(trace, rules, outcome),
        }
    )


def ttft_components(trace: TraceArrays, rules: Rules, outcome: Outcome) -> dict[str, Any]:
    """What the time to the first token was made of, in s, a column of `outcomes` each."""
    kept, arrival_s = answer_rows(trace, outcome), trace.arrival_s[first_leg_rows(trace)]
    begun = leg_begin_s(trace, rules, outcome)[kept]
    return {
        "earlier_s": begun - arrival_s,
        "held_s": _or_null(outcome.dispatched_s[kept] - begun),
        "waited_s": _or_null((outcome.admitted_s - outcome.dispatched_s)[kept]),
        "prefill_s": _or_null((outcome.first_token_s - outcome.network_s - outcome.admitted_s)[kept]),
        "network_s": outcome.network_s[kept],
    }


def is_live_migrated(trace: TraceArrays, fleet: FleetArrays, outcome: Outcome) -> Bools:
    """Whether the last hand-over of each row was a live move, between instances in one role; shape (R,)."""
    if not outcome.sent_from.size:
        return np.zeros(trace.arrival_s.size, bool)
    role = fleet.role[fleet.pool]
    return (outcome.sent_from != NO_INDEX) & (role[outcome.sent_from] == role[outcome.slot])


def migration_pause_s(trace: TraceArrays, fleet: FleetArrays, outcome: Outcome) -> Floats:
    """From when a request left an instance in its last live move until it went on; NaN if never."""
    moved = is_live_migrated(trace, fleet, outcome)
    if not moved.any():
        return np.full(moved.size, np.nan)
    return np.where(moved, outcome.joined_s - outcome.sent_s, np.nan)


def instances_per_request(workload: ReplayWorkload, outcome: Outcome) -> Ints:
    """How many instances had a request one after the other, shape (requests,); 1 where none has yet."""
    had = (outcome.slot != NO_INDEX).astype(np.int64)
    if outcome.sent_from.size:
        had += outcome.sent_from != NO_INDEX
    return np.maximum(sum_legs(workload.trace, had), 1)


def legs_table(
    settings: RunSettings, workload: ReplayWorkload, setting: tuple[FleetArrays, Rules], outcome: Outcome
) -> pa.Table:
    """One row per instance that had a request, of those that several had (seconds from its arrival)."""
    fleet, rules = setting
    had = instance_visits(workload.trace, fleet, rules, outcome)
    own = had[(instances_per_request(workload, outcome) > 1)[had["request"]]]
    pool, arrival_s = fleet.pool[own["slot"]], workload.trace.arrival_s[own["row"]]
    catalogue, trace = settings.catalogue, workload.trace
    judges = workload.answerer != trace.llm if workload.answerer.size else np.zeros(trace.llm.size, bool)
    times = ("came_s", "began_s", "first_token_s", "ended_s")
    return pa.table(
        {
            "request_id": workload.requests["request_id"].take(pa.array(own["request"])),
            "leg": own.groupby("request").cumcount() + 1,
            "llm": pa.array(catalogue.llms).take(pa.array(fleet.llm[pool])),
            "judges": judges[own["row"]],
            "role": pa.array(ROLES).take(pa.array(fleet.role[pool])),
            "region": pa.array(catalogue.regions).take(pa.array(fleet.region[pool])),
            "gpu": pa.array(catalogue.gpus).take(pa.array(fleet.gpu[fleet.kind[pool]])),
            "instance": own["slot"],
            **{name: own[name] for name in ("hand_over_s", "link_s")},
            **{name: own[name] - arrival_s for name in times},
        }
    )


def _or_null(values: np.ndarray) -> pa.Array:
    return pa.array(values, from_pandas=True)  # nan becomes null
