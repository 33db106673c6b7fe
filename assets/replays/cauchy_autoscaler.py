"""Cauchy's autoscaler on a day (models/plan/cauchy_scaling.py): of what came, sample by sample, what is to
stand.

Each llm in each region has one of its own, which sees all GPUs of the region: Cauchy scales one llm. Where
several want more than there is, the replay gives what it has.
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
SAMPLES_PER_DAY = round(HOURS_OF_DAY * 3600 / SAMPLE_S)  # of a day


def autoscaler_targets(settings: RunSettings, day: date, sustained: Floats, demand: Floats) -> Floats:
    """Options that are to stand in each sample of the day, shape (samples, services, regions, options).

    Parameters
    ----------
    sustained : input tokens/s of one option, shape (services, regions, options)
    demand : input tokens/s that the first fleet is for, shape (llms, regions)
    """
    grid = settings.grid
    asked = problem_template(grid, settings.config, [1.0] * len(grid.service_options), "corrected")
    llms, mixes = list(settings.catalogue.llms), token_mixes(settings, day)
    came = arrival_rates_per_s(settings, day)
    table = np.zeros((SAMPLES_PER_DAY, *sustained.shape))
    for i, j in np.ndindex(*sustained.shape[:2]):
        inputs = mixes[asked.llms[i]].input_tokens
        tokens = float(inputs.mean()) if inputs.size else np.inf  # without requests nothing is sustained
        goodput = np.where(asked.max_option_instances[i, j] > 0, sustained[i, j], 0.0) / tokens
        if (goodput > 0).any():
            at = llms.index(asked.llms[i]), j
            best = make_co_lp_chooser(asked, i, j, goodput)
            start = best(demand[at] / tokens, np.zeros(goodput.size, np.int64))
            scaler = DEFAULT_CAUCHY_SETTINGS._replace(boot_s=float(asked.boot_cold_s[i, j].max()))
            table[:, i, j] = cauchy_targets(came[at], goodput, best, start, scaler)
    return table


def make_co_lp_chooser(asked: Problem, i: int, j: int, goodput: Floats) -> ComboChooser:
    """What CO-LP adds of the options of a service in a region, whose GPUs and places are limited."""

    @cache  # of few requests the same rates come again and again
    def added(per_s: float, held: tuple[int, ...]) -> Ints:
        left = np.maximum(asked.cap_gpus[j] - held @ asked.uses[i], 0)
        offer = RentalOffer(asked.options, asked.gpus, asked.usd_per_hour[i], asked.uses[i], left)
        places = np.maximum(asked.max_option_instances[i, j] - held, 0)
        if np.count_nonzero(goodput) == 1:  # no choice, and no solver: as many as it takes, or there are
            n, wanted = int(goodput.argmax()), np.zeros_like(places)
            room = min(left[g] // size for g, size in enumerate(asked.uses[i, n]) if size)
            wanted[n] = min(math.ceil(per_s / goodput[n] * (1 - TOLERANCE)), places[n], room)
            return wanted
        per_usd = np.divide(goodput, offer.usd_per_hour, out=np.zeros_like(goodput), where=goodput > 0)
        found = combo_lp.solve_combo_lp(
            "co_lp", limit_offer(offer, places), np.array([per_s]), goodput[None], per_usd[None]
        )
        return found.counts[0]

    def best(per_s: float, held: Ints) -> Ints:
        if per_s <= TOLERANCE:
            return np.zeros_like(held)
        return added(per_s, tuple(held.tolist()))

    return best


def arrival_rates_per_s(settings: RunSettings, day: date) -> Floats:
    """Interactive requests/s that came to each llm, shape (llms, regions, samples)."""
    catalogue = settings.catalogue
    rows = settings.lake.sql(
        "reads/autoscaler_samples.sql",
        trace=settings.trace,
        day=day,
        sample_s=SAMPLE_S,
        tiers=list(catalogue.interactive_tiers),
    )
    came = np.zeros((len(catalogue.llms), len(catalogue.regions), SAMPLES_PER_DAY + 1))
    # what came in a sample is known when the next one begins
    where = column_codes(rows, "llm", catalogue.llms), column_codes(rows, "region", catalogue.regions)
    came[(*where, rows["sample"].to_numpy() + 1)] = rows["requests"].to_numpy() / SAMPLE_S
    return settings.serving_load(came[..., :SAMPLES_PER_DAY], axis=0)
