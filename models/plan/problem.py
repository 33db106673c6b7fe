"""Inputs of one planning problem (Problem) and its solution (HourPlan). The solvers are in other files.

Axes, everywhere: i services, j regions, k options, g GPU types, w windows of the hour. A service is an llm.
An llm with prefill pools and decode pools is two services, each of which carries all of its requests.
An option is a deployment of an instance: a GPU type and a number of GPUs.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fleetcast.models.aliases import Floats, Ints
from fleetcast.models.plan.pool_capacity import sustained_work
from fleetcast.models.world.calendar import HOUR_S

TOLERANCE = 1e-6  # relative; a smaller violation is rounding of the solver
# Weight of a shortage, as a multiple of the most expensive capacity that would remove it: unserved requests,
# requests served too far from home, instances below the minimum, buffer not kept. At the first weight no plan
# trades more than 1e-5 of an instance for unserved requests. The last is low enough that a plan may leave the
# buffer unfilled in a short peak instead of starting an instance.
UNSERVED_PENALTY, REMOTE_PENALTY, BELOW_MINIMUM_PENALTY, BUFFER_PENALTY = 1e5, 1e3, 100.0, 4.0


class PlanError(ValueError):
    """Error for a contradictory Problem, and for a solver that finds no solution."""


class Problem(NamedTuple):
    """One hour to plan. Symbols in brackets are those of SageServe, Table 2, or of corrected_plan.py."""

    llms: tuple[str, ...]  # (i)
    roles: tuple[str, ...]  # (i) phases of a request that the service runs: whole, prefill or decode
    regions: tuple[str, ...]  # (j)
    options: tuple[str, ...]  # (k)
    gpus: tuple[str, ...]  # (g)
    instances_now: Ints  # (i, j, k) [n] serving
    spot: Ints  # (i, j, k) [s] instances donated to spot, with the llm's weights still loaded
    # (i, k) [theta] input tokens/s of one of four or more instances; nan or <= 0: it does not run there
    tokens_per_s: Floats
    size_shares: Floats  # (4, i, k) [c] of theta, what each of one to four instances in a region sustains
    usd_per_hour: Floats  # (i, k) [alpha] of one instance, all its GPUs
    demand_tokens_per_s: Floats  # (i, j, w) [rho] forecast interactive input tokens/s
    buffer_tokens_per_s: Floats  # (i, j) [beta] added to every window, for bursts and the batch tier
    uses: Ints  # (i, k, g) GPUs of each type in one instance
    cap_gpus: Ints  # (j, g) GPUs of the region
    min_instances: Ints  # (i, j) over all options
    max_instances: Ints  # (i, j)
    min_option_instances: Ints  # (i, j, k)
    max_option_instances: Ints  # (i, j, k)
    budget_usd: float  # upper limit of the instances' cost per hour; inf: no limit
    epsilon: float  # share of a region's peak that its own instances must be able to serve
    window_s: float  # length of a window
    hours: float  # how long a corrected plan holds [h]; the paper's plan holds for one hour
    boot_spot_s: Floats  # (i, k) seconds to reclaim a donated instance of the same llm
    boot_cold_s: Floats  # (i, j, k) seconds to start on any other VM of the region
    spot_earning_share: float  # [pi] earnings of a donated instance, as a share of its price
    hysteresis_share: float  # [eta] expected later cost of releasing an instance, of its hourly price
    export_share: float  # [kappa] cost of serving a token in another region, of its cheapest capacity

    @property
    def runs(self) -> NDArray[np.bool_]:
        """Whether a service runs on an option, shape (i, k)."""
        return np.isfinite(self.tokens_per_s) & (self.tokens_per_s > 0)

    @property
    def services(self) -> tuple[str, ...]:
        """Names of the services, length i: the llm, and its role unless it is whole."""
        named = zip(self.llms, self.roles, strict=True)
        return tuple(llm if role == "whole" else f"{llm} ({role})" for llm, role in named)

    @property
    def gpus_per_instance(self) -> Ints:
        """GPUs of an instance, of all types together, shape (i, k)."""
        return self.uses.sum(axis=2)

    @property
    def windows(self) -> int:
        """Number of windows of the hour."""
        return self.demand_tokens_per_s.shape[2]

    @property
    def need_tokens_per_s(self) -> Floats:
        """Forecast plus buffer in tokens/s, shape (i, j, w)."""
        return self.demand_tokens_per_s + self.buffer_tokens_per_s[:, :, None]

    @property
    def reclaim_usd(self) -> Floats:
        """USD of GPU time lost while a donated instance is reclaimed, shape (i, k) [sigma]."""
        return self.usd_per_hour * self.boot_spot_s / HOUR_S

    @property
    def cold_usd(self) -> Floats:
        """USD of GPU time lost in a cold start, shape (i, j, k)."""
        return self.usd_per_hour[:, None, :] * self.boot_cold_s / HOUR_S

    @property
    def reclaim_window(self) -> Ints:
        """Index of the first window in which a reclaimed instance counts, shape (i, k) [tauW].

        It is the window whose start is nearest to the end of the boot; of two equally near, the earlier.
        """
        return np.ceil(self.boot_spot_s / self.window_s - 0.5).astype(np.int64)

    @property
    def cold_window(self) -> Ints:
        """Index of the first window in which a cold start counts, shape (i, j, k) [tauC]."""
        return np.ceil(self.boot_cold_s / self.window_s - 0.5).astype(np.int64)

    @property
    def export_usd(self) -> Floats:
        """USD of serving 1 token/s in another region for one window, shape (i,) [kappa]."""
        usd = np.divide(
            self.usd_per_hour, self.tokens_per_s, out=np.full(self.runs.shape, np.inf), where=self.runs
        )
        return self.export_share * self.hours * usd.min(axis=1) / self.windows

    @property
    def most_instances(self) -> Ints:
        """No plan has more instances of an option in a region, (i, j, k)."""
        fits = self.cap_gpus.sum(axis=1)[:, None] // np.maximum(self.gpus_per_instance, 1)[:, None]
        return np.minimum(fits, np.minimum(self.max_option_instances, self.max_instances[:, :, None]))

    def sustained_tokens_per_s(self, instances: Ints) -> Floats:
        """Return tokens/s of all options of a service, (i, j), from the instances up, (i, j, k)."""
        capacity = np.where(self.runs, self.tokens_per_s, 0.0)[:, None, :]
        total: Floats = sustained_work(instances, capacity, self.size_shares[:, :, None, :]).sum(axis=2)
        return total

    def missing_instances(self, instances: Ints) -> Ints:
        """Return how many of these instances, shape (i, j, k), are missing to a minimum, shape (i, j).

        It is the larger of the shortfalls below the minimum of all options and below that of one option.
        """
        below_total = self.min_instances - instances.sum(axis=2)
        below_option = (self.min_option_instances - instances).max(axis=2)
        return np.maximum(np.maximum(below_total, below_option), 0)

    @property
    def penalty_usd(self) -> tuple[Floats, Floats]:
        """USD per missing token/s and per missing instance, each (i,): the most expensive capacity's cost.

        One dollar is added per instance, so that a shortage of free instances also has a penalty.
        """
        usd = np.where(self.runs, 1.0 + self.usd_per_hour + self.cold_usd.max(axis=1), 0.0)
        per_token = np.divide(usd, self.tokens_per_s, out=np.zeros_like(usd), where=self.runs)
        return per_token.max(axis=1), usd.max(axis=1)


class WindowFlows(NamedTuple):
    """Tokens/s that a plan serves in each window, each of shape (i, j, w)."""

    capacity: Floats  # of the instances that are up
    exports: Floats  # [e] served by other regions
    imports: Floats  # [m] served for other regions
    unserved: Floats  # [z]
    remote: Floats  # [v] exported beyond 1 - epsilon of the demand
    buffer_short: Floats  # [y] part of the buffer that is not kept


class HourPlan(NamedTuple):
    """Solution of a Problem. `delta` is SageServe's decision; a shortage is a number here, never an error."""

    programme: str  # name of the optimisation model: paper | melange | corrected
    instances: Ints  # (i, j, k) = instances_now + delta
    reclaimed: Ints  # (i, j, k) taken back from spot
    started: Ints  # (i, j, k) started cold; every added instance in the paper's model, which has no spot
    donated: Ints  # (i, j, k) given to spot
    windows: WindowFlows | None  # None in the paper's model, which has no routing beyond epsilon
    short_tokens_per_s: Floats  # (i, j) paper: missing to epsilon of the region's peak; corrected: unserved
    short_llm_tokens_per_s: Floats  # (i,) missing for the service's traffic of all regions together
    missing_instances: Ints  # (i, j) below min_instances or, of one option, below min_option_instances
    objective_usd: float  # cost of the hour's instances, of starting and of releasing; without penalties
    full_usd: float  # objective_usd plus the penalties for shortage: the minimised value
    lp_bound_usd: float = 0.0  # lower bound of full_usd from the LP relaxation
    bound_usd: float = 0.0  # no plan has a lower full_usd; at least lp_bound_usd
    gap_share: float = 1.0  # largest distance of full_usd to the optimum, as a share of full_usd
    status: str = "given"  # or optimal (within the requested gap), or time_limit (best plan found so far)
    solver: str = "none"  # name of the solver that found the plan
    seconds: float = 0.0  # building and solving

    @property
    def delta(self) -> Ints:
        """Instances to add (positive) or to release (negative), shape (i, j, k)."""
        return self.reclaimed + self.started - self.donated
