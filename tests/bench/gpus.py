"""Which GPUs to rent: profiles composed from kernels, the programmes, the command."""

import measurements
import numpy as np
from measure import Figures, Skipped, Target, wall_seconds

from fleetcast.assets.lake.errors import LakeError
from fleetcast.assets.lake.settings import Progress, load_settings
from fleetcast.assets.plans.day_ahead import next_plan_day
from fleetcast.assets.studies import rent_answer, rent_query
from fleetcast.models.plan import combo_lp, share_program
from fleetcast.models.plan.rental import RentalOffer
from fleetcast.models.plan.solver import DEFAULT_SOLVER
from fleetcast.models.world.catalogue import load_catalogue

CATALOGUE = load_catalogue().of_era("2023", "here")
COMPOSED = "profiles composed from measured kernels: TPOT of measured runs, median error"
HOPPER = ("h100-80gb", "h200-141gb")

MANY = 60  # options, and buckets
TARGETS = {
    "gpus_composed_tpot_error": Target("", f"{COMPOSED}, H100 and H200", at_most=0.08),
    "gpus_composed_tpot_error_all": Target("", f"{COMPOSED}, B200 too"),
    "gpus_composed_tpot_error_p90": Target("", "the same, 90th percentile"),
    "gpus_composed_tpot_error_16_bits": Target("", f"{COMPOSED}, 16 bits"),
    "gpus_composed_tpot_error_8_bits": Target("", f"{COMPOSED}, 8 bits"),
    "gpus_co_lp_seconds": Target("s", "CO-LP (eq. 16), 12 combos for 3 workloads, wall", at_most=0.05),
    "gpus_shares_seconds": Target(
        "s", "shares, 60 options x 60 buckets to 0.5 %, worst of 3, wall", at_most=3.0
    ),
    "gpus_shares_gap": Target("", "how far above the best one the worst of them may lie", at_most=0.005),
    "gpus_command_seconds": Target("s", "fleetcast gpus, six GPU types, one llm, wall", at_most=60.0),
}


def composed() -> Figures:
    """How near a profile composed from kernels comes to whole runs that nothing was fitted to."""
    if not measurements.KERNELS.exists():
        raise Skipped(f"no measured runs in {measurements.PROFILES}")
    runs = measurements.tpot_runs(CATALOGUE)
    error = np.abs(runs["predicted_s"] / runs["tpot_s"] - 1)
    return {
        "gpus_composed_tpot_error": float(error[runs["gpu"].isin(HOPPER)].median()),
        "gpus_composed_tpot_error_all": float(error.median()),
        "gpus_composed_tpot_error_p90": float(error.quantile(0.9)),
        "gpus_composed_tpot_error_16_bits": float(error[runs["weight_bits"] == 16].median()),
        "gpus_composed_tpot_error_8_bits": float(error[runs["weight_bits"] == 8].median()),
    }


def offer(options: int, gpus: int, seed: int) -> RentalOffer:
    """Options that hold a few GPUs of some types each, at prices of their own."""
    rng = np.random.default_rng(seed)
    uses = rng.integers(0, 4, (options, gpus)) + np.eye(options, gpus, dtype=np.int64)
    usd = uses @ rng.uniform(1.0, 6.0, gpus) * rng.uniform(0.95, 1.05, options)
    names = tuple(f"option {n}" for n in range(options))
    return RentalOffer(names, tuple(f"gpu {n}" for n in range(gpus)), usd, uses, np.full(gpus, 400))


def programmes() -> Figures:
    """Choosing among combos, and dividing many buckets over many options."""
    few, rng = offer(12, 3, 1), np.random.default_rng(1)
    goodput, rates = few.usd_per_hour * rng.uniform(0.5, 1.5, (3, 12)), np.array([54.0, 50.0, 6.0])
    efficiency = goodput / few.usd_per_hour
    taken, gaps = [], []
    for seed in range(3):
        many, rng = offer(MANY, 6, seed), np.random.default_rng(seed)
        served, demand = many.usd_per_hour * rng.uniform(0.5, 1.5, (MANY, MANY)), rng.uniform(1.0, 30.0, MANY)
        found = share_program.solve_shares(
            many, demand, served, options=DEFAULT_SOLVER._replace(time_limit_s=30.0)
        )
        taken.append(found.seconds)
        gaps.append(found.gap_share)
    return {
        "gpus_co_lp_seconds": wall_seconds(
            lambda: combo_lp.solve_combo_lp("co_lp", few, rates, goodput, efficiency), repeats=3
        ),
        "gpus_shares_seconds": max(taken),
        "gpus_shares_gap": max(gaps),
    }


def command() -> Figures:
    """The whole answer for llama3.1-8b of the office trace, forecast of the day to come included."""
    settings = load_settings("sageserve")
    try:
        day = next_plan_day(settings)
    except LakeError as error:
        raise Skipped(f"the lake has no office trace: run make run ({error})") from error

    def ask() -> None:
        demand = rent_query.build_rent_query(
            settings, day, "llama3.1-8b", None, [], "any", None, None, Progress()
        )
        rent_answer.answer_rent_query(settings, day, demand, Progress())

    return {"gpus_command_seconds": wall_seconds(ask)}


FUNCTIONS = (composed, programmes, command)
SMOKE = {"programmes": {"MANY": 5}}
