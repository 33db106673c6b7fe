"""Cauchy's autoscaler on a day (models/plan/cauchy_scaling.py): target options from the requests, by sample.

Each llm in each region has its own autoscaler, which sees all GPUs of the region, because Cauchy scales one
llm. Where several together want more GPUs than there are, the replay limits them, and the start is limited
here: the first llms have theirs.
"""

import math
from datetime import date
from functools import cache

import numpy as np

from fleetcast.assets.lake.lake_preconditions import column_codes
from fleetcast.assets.lake.settings import HOURS_OF_DAY, RunSettings
from fleetcast.assets.plans.problems import problem_template
from fleetcast.assets.plans.request_mixes import token_mixes
from fleetcast.models.aliases import Floats, Ints
from fleetcast.models.plan import combo_lp
from fleetcast.models.plan.cauchy_scaling import DEFAULT_CAUCHY_SETTINGS, ComboChooser, cauchy_targets
from fleetcast.models.plan.problem import TOLERANCE, Problem
from fleetcast.models.plan.rental import RentalOffer, limit_offer

SAMPLE_S = DEFAULT_CAUCHY_SETTINGS.sample_s
SAMPLES_PER_DAY = round(HOURS_OF_DAY * 3600 / SAMPLE_S)


def autoscaler_targets(settings: RunSettings, day: date, capacity: Floats, demand: Floats) -> Floats:
    """Return the target options of the day, shape (samples, services, regions, options).

    capacity : (services, regions, options) input tokens/s of one option
    demand : (llms, regions) input tokens/s, the load of the fleet at the start
    """
    grid = settings.grid
    problem = problem_template(grid, settings.config, [1.0] * len(grid.service_options), "corrected")
    llms, mixes = list(settings.catalogue.llms), token_mixes(settings, day)
    arrivals = arrival_rates_per_s(settings, day)
    table = np.zeros((SAMPLES_PER_DAY, *capacity.shape))
    for i, j in np.ndindex(*capacity.shape[:2]):
        inputs = mixes[problem.llms[i]].input_tokens
        tokens = float(inputs.mean()) if inputs.size else np.inf  # without requests the goodput is 0
        goodput = np.where(problem.max_option_instances[i, j] > 0, capacity[i, j], 0.0) / tokens
        if (goodput > 0).any():
            at = llms.index(problem.llms[i]), j
            choose = make_co_lp_chooser(problem, i, j, goodput)
            start = choose(demand[at] / tokens, np.zeros(goodput.size, np.int64))
            scaler = DEFAULT_CAUCHY_SETTINGS._replace(boot_s=float(problem.boot_cold_s[i, j].max()))
            table[:, i, j] = cauchy_targets(arrivals[at], goodput, choose, start, scaler)
    table[0] = limit_to_caps(table[0], problem.uses, problem.cap_gpus)
    return table


def limit_to_caps(options: Floats, uses: Ints, cap_gpus: Ints) -> Floats:
    """Return as many of these options as the GPUs of each region hold, the first services first.

    options : (services, regions, options) that are wanted, shape of the result
    uses : (services, options, GPU types) GPUs of one option
    cap_gpus : (regions, GPU types)
    """
    found, left = np.zeros_like(options), cap_gpus.astype(float)
    for i, j, n in np.ndindex(*options.shape):
        taken = uses[i, n] > 0
        room = (left[j, taken] // uses[i, n, taken]).min() if taken.any() else options[i, j, n]
        found[i, j, n] = min(options[i, j, n], room)
        left[j] -= found[i, j, n] * uses[i, n]
    return found


def make_co_lp_chooser(problem: Problem, i: int, j: int, goodput: Floats) -> ComboChooser:
    """Return CO-LP's choice of options to add for service `i` in region `j`, within its GPUs and maxima.

    `goodput`: (options,) requests/s of one option.
    """

    @cache  # with few requests, the same rates occur again and again
    def added_options(per_s: float, running: tuple[int, ...]) -> Ints:
        free_gpus = np.maximum(problem.cap_gpus[j] - running @ problem.uses[i], 0)
        offer = RentalOffer(
            problem.options, problem.gpus, problem.usd_per_hour[i], problem.uses[i], free_gpus
        )
        room = np.maximum(problem.max_option_instances[i, j] - running, 0)
        if np.count_nonzero(goodput) == 1:  # a single option needs no solver: the load or the limits decide
            n, counts = int(goodput.argmax()), np.zeros_like(room)
            gpu_room = min(free_gpus[g] // size for g, size in enumerate(problem.uses[i, n]) if size)
            counts[n] = min(math.ceil(per_s / goodput[n] * (1 - TOLERANCE)), room[n], gpu_room)
            return counts
        per_usd = np.divide(goodput, offer.usd_per_hour, out=np.zeros_like(goodput), where=goodput > 0)
        fleet = combo_lp.solve_combo_lp(
            "co_lp", limit_offer(offer, room), np.array([per_s]), goodput[None], per_usd[None]
        )
        return fleet.counts[0]

    def choose(per_s: float, running: Ints) -> Ints:
        if per_s <= TOLERANCE:
            return np.zeros_like(running)
        return added_options(per_s, tuple(running.tolist()))

    return choose


def arrival_rates_per_s(settings: RunSettings, day: date) -> Floats:
    """Return interactive requests/s in the sample before each one, shape (llms, regions, samples)."""
    catalogue = settings.catalogue
    rows = settings.lake.sql(
        "reads/autoscaler_samples.sql",
        trace=settings.trace,
        day=day,
        sample_s=SAMPLE_S,
        tiers=list(catalogue.interactive_tiers),
    )
    arrivals = np.zeros((len(catalogue.llms), len(catalogue.regions), SAMPLES_PER_DAY + 1))
    # the requests of a sample are known when the next one begins
    where = column_codes(rows, "llm", catalogue.llms), column_codes(rows, "region", catalogue.regions)
    arrivals[(*where, rows["sample"].to_numpy() + 1)] = rows["requests"].to_numpy() / SAMPLE_S
    return settings.serving_load(arrivals[..., :SAMPLES_PER_DAY], axis=0)
