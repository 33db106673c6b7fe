"""Replicas by the rule `compact` from what a Prometheus server measures now, for the KEDA scaler.

    work     = prompts that arrive, and those that wait / catch_up_s                  tokens/s of each llm
    needed   = instances that sustain the work                                       (compact_schedule.py)
    replicas = largest need over the time that an unused instance is held

At each read all is computed from the server's series of that time, every 15 s. So the state is that of the
server, and a scaler that starts again gives the same answers. Where an llm has no fresh series, the plan
applies. Deferred requests count as any other when an engine gets them.
"""

from datetime import date, datetime, timedelta

import numpy as np

from fleetcast.assets.lake.settings import Progress, RunSettings
from fleetcast.assets.plans import measured_capacity
from fleetcast.assets.plans.current_plan import MEASURED_STATE, CurrentPlan, ReplicaTarget, WorkloadKey
from fleetcast.assets.plans.hpa_steps import STEP_MINUTES
from fleetcast.assets.plans.observed_load_metrics import (
    RATE_S,
    ObservedLoad,
    pool_label,
    read_observed_load,
)
from fleetcast.assets.replays.compact_schedule import (
    CompactRule,
    largest_held,
    measure_rule,
    needed_instances,
    pool_capacity,
)
from fleetcast.assets.replays.hold_times import STEP_S
from fleetcast.assets.replays.policy_inputs import relative_capacity_share
from fleetcast.assets.traces.ingest import LANDING_DIR
from fleetcast.assets.traces.ingest_bounds import IngestError
from fleetcast.assets.traces.prometheus_answers import METRICS_SUFFIX
from fleetcast.assets.traces.prometheus_client import require_url
from fleetcast.assets.traces.trace_mapping import read_mapping
from fleetcast.models.aliases import Floats

STEP = round(STEP_S)
STALE_S = 90  # after which a value is no longer that of now
SHOWN_STEPS = STEP_MINUTES * 60 // STEP + 1  # of which an HPA's steps need the replicas


class LiveReplicas:
    """Replicas of each workload by the rule `compact`, and by a plan where the server's metrics lack.

    plan : the plan that applies without metrics
    url, where : address of the server, and label matchers of the engines' series
    progress : shows how the capacity of the instances is measured, at the start and once a day

    IngestError for an address that is none, ConfigError and ValueError of `measure_live_rule`.
    """

    def __init__(self, plan: CurrentPlan, url: str, where: str, progress: Progress) -> None:
        self.plan, self.trace, self.policy, self.now = plan, plan.trace, plan.policy, plan.now
        self._url, self._where, self._progress = url, where, progress
        require_url(url)
        settings = plan.settings
        place = LANDING_DIR / f"{settings.trace}{METRICS_SUFFIX}"
        self._mapping = read_mapping(place, settings.trace, settings.catalogue)
        self._pools = {pool_label(settings.grid, pool): pool for pool in range(len(settings.grid.pools))}
        self._rule = self.now().date(), measure_live_rule(settings, self.now().date(), progress)
        self._replicas = np.full((SHOWN_STEPS, len(self._pools)), np.nan)  # the newest first; NaN: unknown
        self._read_at, self._why = self.now(), "no metrics were read"

    def refresh(self) -> bool:
        """Read the metrics and the plan again; return whether the plan is new, LakeError as there."""
        try:
            self._replicas, self._why = self._decide(), ""
            self._read_at = self.now()
        except IngestError as error:
            self._why = str(error)
        return self.plan.refresh()

    def replica_target(
        self, key: WorkloadKey, floor: int | None, moment: datetime | None = None
    ) -> ReplicaTarget:
        """Return the target of a workload at a moment, by default now; ValueError as that of the plan."""
        region, llm, gpu, gpus, role = key
        back = timedelta(0) if moment is None else self.now() - moment
        pool = self._pools.get((region, llm, role, gpu, gpus))
        step = min(max(0, round(back.total_seconds() / STEP)), SHOWN_STEPS - 1)
        replicas = np.nan if pool is None else self._replicas[step, pool]
        if (self.now() - self._read_at).total_seconds() > STALE_S or np.isnan(replicas):
            planned = self.plan.replica_target(key, floor, moment)
            lacking = self._why or f"no metrics of {llm} within {STALE_S} s"
            return planned._replace(why="; ".join(filter(None, [lacking, planned.why])))
        return ReplicaTarget(int(replicas), MEASURED_STATE, "", "")

    def _decide(self) -> Floats:
        """Return the replicas of the last steps by pool, (SHOWN_STEPS, pools), from the server's series."""
        settings, now = self.plan.settings, self.now()
        rule = self._rule_of(now.date())
        last = int(now.timestamp()) // STEP * STEP
        steps = int(rule.held_decisions.max()) + SHOWN_STEPS + RATE_S // STEP
        instants = [last - STEP * back for back in reversed(range(steps))]
        load = read_observed_load(self._url, self._where, settings.grid, self._mapping, instants, STEP)
        return live_replicas(load, rule, settings.config.replay.catch_up_s)

    def _rule_of(self, day: date) -> CompactRule:
        """Return the rule of a day, measured once; that of the day before where it cannot be measured."""
        measured_on, rule = self._rule
        if measured_on != day:
            try:
                rule = measure_live_rule(self.plan.settings, day, self._progress)
            except ValueError as error:
                self._progress.say(f"The rule of {measured_on} stays in use: {error}")
            self._rule = day, rule
        return rule


def measure_live_rule(settings: RunSettings, day: date, progress: Progress) -> CompactRule:
    """Return the rule `compact` of a day, measured on the newest requests before it.

    ConfigError as there; ValueError for a lake without requests of the days before.
    """
    if not set(settings.history(day)) & set(settings.lake.days("requests", settings.trace)):
        raise ValueError(
            f"The lake has no requests of {settings.trace} of {settings.config.forecast.history_days} days "
            f"before {day}: the capacity of an instance is measured on them. Ingest them, or set the clock "
            "to a past day by --now."
        )
    of_options = np.array(measured_capacity.measure_capacities(settings, day, progress))
    of_four = settings.config.plan.corrected_capacity_share * pool_capacity(settings.grid, of_options)
    knob = relative_capacity_share(settings.config, "compact")
    return measure_rule(settings, day, of_four, knob * of_four)


def live_replicas(load: ObservedLoad, rule: CompactRule, catch_up_s: float) -> Floats:
    """Return the replicas of the last steps, (SHOWN_STEPS, pools), the newest first; NaN without a value.

    Where an llm's series begins within the time that is held, the instances that served then are held too.
    In a gap, the need of the step before it applies.
    """
    work = load.arriving_tokens_per_s(STEP) + load.waiting_tokens() / catch_up_s
    is_known = ~np.isnan(work)[rule.llms]
    begins = np.where(is_known[:, 0], -1, is_known.argmax(axis=1))
    first_of_llm = np.unique(rule.llms, return_index=True)[1]
    needed = np.zeros((work.shape[1], rule.llms.size))
    for step in range(len(needed)):
        of_pools = np.zeros(rule.llms.size)
        of_pools[first_of_llm] = np.nan_to_num(work[rule.llms[first_of_llm], step])
        running = load.serving[:, step]
        at_step = np.where(is_known[:, step], needed_instances(of_pools, running, rule), needed[step - 1])
        needed[step] = np.maximum(at_step, np.where(begins == step, running, 0.0))
    replicas = np.full((SHOWN_STEPS, rule.llms.size), np.nan)
    for back in range(SHOWN_STEPS):
        end = len(needed) - back
        held = largest_held(needed[:end][::-1], rule.held_decisions)
        is_fresh = is_known[:, max(0, end - STALE_S // STEP) : end].any(axis=1)
        replicas[back] = np.where(is_fresh, np.clip(np.ceil(held), rule.least, rule.most), np.nan)
    return replicas
