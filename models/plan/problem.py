"""What a plan is asked (Problem) and what it answers (Plan). Nothing here knows how a plan is found.

Axes, everywhere: i services, j regions, k options, g GPU types, w windows of the hour. A service is an llm;
where pools of it prefill and others decode, it is two of them, each of which carries all the llm's requests.
An option is what an instance may be: so many GPUs of one type.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fleetcast.models.aliases import Floats, Ints
from fleetcast.models.world.calendar import HOUR_S

TOLERANCE = 1e-6  # relative; a violation smaller than this is the solver's arithmetic
# What a shortage weighs against the dearest capacity that would cure it: unserved requests, requests too far
# from home, instances below the minimum, buffer given up. The first is so dear that no plan trades more than
# a hundred-thousandth of an instance for it; the last is cheap enough to save an instance for a short peak.
UNSERVED_PENALTY, REMOTE_PENALTY, BELOW_MINIMUM_PENALTY, BUFFER_PENALTY = 1e5, 1e3, 100.0, 4.0


class PlanError(ValueError):
    """A Problem that contradicts itself, or a solver that cannot answer it."""


class Problem(NamedTuple):
    """One hour to plan. Symbols in brackets are those of SageServe, Table 2, or of corrected.py."""

    llms: tuple[str, ...]  # (i)
    roles: tuple[str, ...]  # (i) what the service does of each request: whole, prefill or decode
    regions: tuple[str, ...]  # (j)
    options: tuple[str, ...]  # (k)
    gpus: tuple[str, ...]  # (g)
    instances_now: Ints  # (i, j, k) [n] serving
    spot: Ints  # (i, j, k) [s] donated, with the weights of the llm still on them
    tokens_per_s: Floats  # (i, k) [theta] input tokens/s of one instance; nan or <= 0: does not run there
    usd_per_hour: Floats  # (i, k) [alpha] of one instance, all its GPUs
    demand_tokens_per_s: Floats  # (i, j, w) [rho] forecast interactive input tokens/s
    buffer_tokens_per_s: Floats  # (i, j) [beta] added to every window, for bursts and niw
    uses: Ints  # (i, k, g) GPUs of each type that one instance holds
    cap_gpus: Ints  # (j, g) GPUs that the region has
    min_instances: Ints  # (i, j) over all options
    max_instances: Ints  # (i, j)
    min_option_instances: Ints  # (i, j, k)
    max_option_instances: Ints  # (i, j, k)
    budget_usd: float  # the most that the instances of the hour may cost; inf: any
    epsilon: float  # share of its own peak that a region must be able to serve
    window_s: float  # length of a window
    hours: float  # how long a corrected plan holds [h]; the paper's does for one
    boot_spot_s: Floats  # (i, k) seconds to reclaim a donated instance of the same llm
    boot_cold_s: Floats  # (i, j, k) seconds to start on any other VM of the region
    spot_earning_share: float  # [pi] what a donated instance earns, of its price
    hysteresis_share: float  # [eta] what giving an instance up is expected to cost later, of its hourly price
    export_share: float  # [kappa] what serving a token elsewhere costs, of the cheapest capacity for it

    @property
    def runs(self) -> NDArray[np.bool_]:
        """Which service runs on which option, shape (i, k)."""
        return np.isfinite(self.tokens_per_s) & (self.tokens_per_s > 0)

    @property
    def services(self) -> tuple[str, ...]:
        """What the services are called, (i)."""
        named = zip(self.llms, self.roles, strict=True)
        return tuple(llm if role == "whole" else f"{llm} ({role})" for llm, role in named)

    @property
    def gpus_per_instance(self) -> Ints:
        """GPUs of an instance, of all types together, shape (i, k)."""
        return self.uses.sum(axis=2)

    @property
    def windows(self) -> int:
        """Windows of the hour."""
        return self.demand_tokens_per_s.shape[2]

    @property
    def need_tokens_per_s(self) -> Floats:
        """Forecast plus buffer, shape (i, j, w)."""
        return self.demand_tokens_per_s + self.buffer_tokens_per_s[:, :, None]

    @property
    def reclaim_usd(self) -> Floats:
        """GPU time lost while a donated instance comes back, shape (i, k) [sigma]."""
        return self.usd_per_hour * self.boot_spot_s / HOUR_S

    @property
    def cold_usd(self) -> Floats:
        """GPU time lost in a cold start, shape (i, j, k)."""
        return self.usd_per_hour[:, None, :] * self.boot_cold_s / HOUR_S

    @property
    def reclaim_window(self) -> Ints:
        """The first window in which a reclaimed instance counts, shape (i, k) [tauW].

        It is the window whose beginning lies nearest to the end of the boot; of two, the earlier.
        """
        return np.ceil(self.boot_spot_s / self.window_s - 0.5).astype(np.int64)

    @property
    def cold_window(self) -> Ints:
        """The first window in which a cold start counts, shape (i, j, k) [tauC]."""
        return np.ceil(self.boot_cold_s / self.window_s - 0.5).astype(np.int64)

    @property
    def export_usd(self) -> Floats:
        """USD per token/s that is served elsewhere for one window, shape (i,)."""
        usd = np.divide(
            self.usd_per_hour, self.tokens_per_s, out=np.full(self.runs.shape, np.inf), where=self.runs
        )
        return self.export_share * self.hours * usd.min(axis=1) / self.windows

    def missing_instances(self, instances: Ints) -> Ints:
        """What instances of shape (i, j, k) lack of a minimum, shape (i, j): of all options or of one."""
        of_all = self.min_instances - instances.sum(axis=2)
        of_one = (self.min_option_instances - instances).max(axis=2)
        return np.maximum(np.maximum(of_all, of_one), 0)

    @property
    def penalty_usd(self) -> tuple[Floats, Floats]:
        """USD per missing token/s and per missing instance, each (i,): what the dearest capacity costs.

        One dollar is added to an instance, so that free instances are wanted as well.
        """
        usd = np.where(self.runs, 1.0 + self.usd_per_hour + self.cold_usd.max(axis=1), 0.0)
        per_token = np.divide(usd, self.tokens_per_s, out=np.zeros_like(usd), where=self.runs)
        return per_token.max(axis=1), usd.max(axis=1)


class WindowFlows(NamedTuple):
    """What a plan serves, window by window: tokens/s, each of shape (i, j, w)."""

    capacity: Floats  # of the instances that are up
    exports: Floats  # [e] served by other regions
    imports: Floats  # [m] served for other regions
    unserved: Floats  # [z]
    remote: Floats  # [v] exported beyond 1 - epsilon of the demand
    buffer_short: Floats  # [y] of the buffer, given up


class HourPlan(NamedTuple):
    """The answer. `delta` is SageServe's decision; a shortage is a figure here, never a failure."""

    programme: str  # paper | corrected
    instances: Ints  # (i, j, k) = instances_now + delta
    reclaimed: Ints  # (i, j, k) taken back from spot
    started: Ints  # (i, j, k) cold; all that is added in the paper's programme, which knows no spot
    donated: Ints  # (i, j, k) given to spot
    windows: WindowFlows | None  # None in the paper's programme, which leaves routing to its epsilon
    short_tokens_per_s: Floats  # (i, j) paper: missing below epsilon of the own peak; corrected: unserved
    short_llm_tokens_per_s: Floats  # (i,) missing for the service's traffic of all regions together
    missing_instances: Ints  # (i, j) below min_instances or, of one option, below min_option_instances
    objective_usd: (
        float  # what the instances of the hour cost, with starting and giving up, without penalties
    )
    full_usd: float  # the same with the penalties for shortage, which is what was minimised
    lp_bound_usd: float = 0.0  # full_usd of the best plan if instances could be divided
    bound_usd: float = 0.0  # no plan has less full_usd; at least lp_bound_usd
    gap_share: float = 1.0  # what full_usd may lie above the best one, of full_usd
    status: str = "given"  # or optimal (within the asked gap), or time_limit (the best that was found)
    solver: str = "none"  # which one answered
    seconds: float = 0.0  # building and solving

    @property
    def delta(self) -> Ints:
        """Instances to add or to give up, shape (i, j, k)."""
        return self.reclaimed + self.started - self.donated
