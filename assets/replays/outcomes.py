"""Build the tables of a day's replay: the outcomes of its requests, and their legs.

A leg is one stage of a request on one instance: a draft, a judgement, or the part before or after a KV
transfer or live migration.
"""

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from fleetcast.assets.lake.settings import RunSettings
from fleetcast.assets.replays.fleet_hours import gpu_titles
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

REPLAY_END_S = DAY_S + TAIL_PERIODS * HOUR_S  # end of a replay, on the day's clock


def instance_visits(trace: TraceArrays, fleet: FleetArrays, rules: Rules, outcome: Outcome) -> pd.DataFrame:
    """Return a row for each visit of a request to an instance; s on the day's clock, without network.

    request        position among the requests, in their order
    row            row of the trace
    slot           the instance
    hand_over_s    duration of the judge or the transfer before the visit; NaN before the first visit
    link_s         duration of the KV transfer from prefill to decode on both links; NaN without one
    came_s         time when it enters the instance's queue
    began_s        time when it enters the batch
    first_token_s  time of the first token; NaN if the visit made none
    ended_s        time when it leaves the instance
    """
    rows = np.flatnonzero(outcome.slot != NO_INDEX)
    is_first = trace.leg[rows] == 0 if trace.leg.size else np.ones(rows.size, bool)
    network_s = outcome.network_s[rows]
    visits = pd.DataFrame(
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
    is_moved = outcome.sent_from[rows] != NO_INDEX
    at = rows[is_moved]
    sent_s, came_s = outcome.sent_s[at], outcome.came_s[at]
    sender, receiver = outcome.sent_from[at], outcome.slot[at]
    before = visits[is_moved].assign(slot=sender, ended_s=sent_s)
    token_s = fleet.link_token_s[fleet.slot_kind]
    link_s = trace.input_tokens[at] * np.maximum(token_s[sender], token_s[receiver])
    role = fleet.role[fleet.pool]
    after = visits[is_moved].assign(
        hand_over_s=came_s - sent_s,
        link_s=np.where(role[sender] == role[receiver], np.nan, link_s),
        came_s=came_s,
        began_s=outcome.joined_s[at],
        first_token_s=np.nan,
    )
    return pd.concat([visits[~is_moved], before, after]).sort_values(
        ["row"], kind="stable", ignore_index=True
    )


def outcomes_table(
    settings: RunSettings, workload: ReplayWorkload, setting: tuple[FleetArrays, Rules], outcome: Outcome
) -> pa.Table:
    """Return a row per request: its properties, SLO targets and results (seconds from its arrival)."""
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
    """Return the parts of the time to the first token, in s: columns of `outcomes`, each (requests,)."""
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
    """Return whether each row's last transfer was a live migration, i.e. within one role; (rows,)."""
    if not outcome.sent_from.size:
        return np.zeros(trace.arrival_s.size, bool)
    role = fleet.role[fleet.pool]
    return (outcome.sent_from != NO_INDEX) & (role[outcome.sent_from] == role[outcome.slot])


def migration_pause_s(trace: TraceArrays, fleet: FleetArrays, outcome: Outcome) -> Floats:
    """Return the pause of each row's last live migration, (rows,) s; NaN without one."""
    is_moved = is_live_migrated(trace, fleet, outcome)
    if not is_moved.any():
        return np.full(is_moved.size, np.nan)
    return np.where(is_moved, outcome.joined_s - outcome.sent_s, np.nan)


def instances_per_request(workload: ReplayWorkload, outcome: Outcome) -> Ints:
    """Return how many instances each request has visited, shape (requests,); 1 where it still waits."""
    visits = (outcome.slot != NO_INDEX).astype(np.int64)
    if outcome.sent_from.size:
        visits += outcome.sent_from != NO_INDEX
    return np.maximum(sum_legs(workload.trace, visits), 1)


def legs_table(
    settings: RunSettings, workload: ReplayWorkload, setting: tuple[FleetArrays, Rules], outcome: Outcome
) -> pa.Table:
    """Return a row per instance that a request visited, for requests with several (seconds from arrival)."""
    fleet, rules = setting
    visits = instance_visits(workload.trace, fleet, rules, outcome)
    legs = visits[(instances_per_request(workload, outcome) > 1)[visits["request"]]]
    pool, arrival_s = fleet.pool[legs["slot"]], workload.trace.arrival_s[legs["row"]]
    catalogue, trace = settings.catalogue, workload.trace
    judges = workload.answerer != trace.llm if workload.answerer.size else np.zeros(trace.llm.size, bool)
    times = ("came_s", "began_s", "first_token_s", "ended_s")
    return pa.table(
        {
            "request_id": workload.requests["request_id"].take(pa.array(legs["request"])),
            "leg": legs.groupby("request").cumcount() + 1,
            "llm": pa.array(catalogue.llms).take(pa.array(fleet.llm[pool])),
            "is_judging": judges[legs["row"]],
            "role": pa.array(ROLES).take(pa.array(fleet.role[pool])),
            "served_region": pa.array(catalogue.regions).take(pa.array(fleet.region[pool])),
            "gpu": pa.array(gpu_titles(settings, fleet)[pool]),
            "instance": legs["slot"],
            **{name: legs[name] for name in ("hand_over_s", "link_s")},
            **{name: legs[name] - arrival_s for name in times},
        }
    )


def _or_null(values: Floats) -> pa.Array:
    return pa.array(values, from_pandas=True)  # NaN becomes null
