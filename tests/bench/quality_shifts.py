"""A cascade whose load shifts: a plan that stays, gears, a valve, plans made anew, a plan for the peak."""

from collections.abc import Iterable

import quality_gears
import quality_shift as shift
from levels_study import show
from measure import Figures, Target
from pandas import DataFrame
from quality import H100, PAIR, settings_with

from fleetcast.models.plan.quality_milp import PointPlan, QualityOffer
from fleetcast.models.quality.answers import JudgedAnswers
from fleetcast.models.quality.judges import load_quality
from fleetcast.models.quality.trace_answers import generate_answers
from fleetcast.models.trials.latency_curves import ReplicaShape, add_roofline_profiles
from fleetcast.models.world.catalogue import load_catalogue
from fleetcast.models.world.catalogue_overrides import override_catalogue
from fleetcast.models.world.mechanisms import GearTrigger

SHIFTS = {
    "lasting": (
        shift.Phase(1800, 40),
        shift.Phase(1800, 60),
        shift.Phase(1800, 60, hardness=1.0),
        shift.Phase(1800, 25),
    ),
    "bursts": (
        shift.Phase(1200, 40),
        shift.Phase(240, 80),
        shift.Phase(1200, 40),
        shift.Phase(240, 100),
        shift.Phase(1200, 40),
    ),
}
SHIFT_GPUS, SHIFT_QUALITY, SHIFT_LATENCY_S = 64, 0.52, 30.0
QUESTIONS = 40_000  # questions
WAYS = ("stays", "gears", "valve", "anew", "peak")
TARGETS = {
    **{
        f"quality_shift_{load}_{way}_{what}": Target("", f"{how} of a plan that {way} through {load} shifts")
        for load in SHIFTS
        for way in WAYS
        for what, how in (
            ("in_time", "share within 30 s"),
            ("quality", "quality"),
            ("usd_per_hour", "USD per hour"),
        )
    }
}


def shifts() -> Figures:
    """A cascade of two llms through lasting shifts and through bursts, under each way to meet them."""
    settings, shipped = settings_with(), load_quality()
    judge = shipped.judges["learned"]
    drawn = generate_answers(shipped.answers["mmlu_pro"], judge, QUESTIONS, 7).of(PAIR)
    shapes = [ReplicaShape(PAIR[0], H100, 1, 1), ReplicaShape(PAIR[1], H100, 4, 1)]
    priced = override_catalogue(
        load_catalogue().of_era("2023", "here"), settings.config.catalogue, "quality.toml"
    )
    service = shift.Service(
        shapes,
        SHIFT_GPUS,
        judge,
        SHIFT_QUALITY,
        SHIFT_LATENCY_S,
        add_roofline_profiles(priced, shapes),
        settings.config,
    )
    figures: Figures = {}
    for name, phases in SHIFTS.items():
        first = plan_of(service, drawn.rows(slice(0, 5000)), phases[0].requests_per_s)
        load = shift.loaded(drawn, phases, seed=3)
        worst = max(phases, key=lambda one: one.requests_per_s * (1 + one.hardness))
        hardest = shift.loaded(drawn, [worst._replace(seconds=120.0)], seed=5).answers
        plan, offer, answer = first
        peak = plan_of(service, hardest, worst.requests_per_s)[0]
        table = quality_gears.geared(service, offer, answer, 3 * phases[0].requests_per_s)
        geared = quality_gears.rules_of(service, plan, table, GearTrigger.RATE)
        valved = quality_gears.rules_of(service, plan, quality_gears.valve(plan), GearTrigger.LOAD)
        played = {
            "stays": shift.play(service, load, plan, quality_gears.rules_of(service, plan), anew=False),
            "gears": shift.play(service, load, plan, geared, anew=False),
            "valve": shift.play(service, load, plan, valved, anew=False),
            "anew": shift.play(service, load, plan, quality_gears.rules_of(service, plan), anew=True),
            "peak": shift.play(service, load, peak, quality_gears.rules_of(service, peak), anew=False),
        }
        rows = []
        for way, found in played.items():
            in_time = found.served.answer_latency_s <= SHIFT_LATENCY_S
            quality = found.served.quality
            figures |= {
                f"quality_shift_{name}_{way}_in_time": float(in_time.mean()),
                f"quality_shift_{name}_{way}_quality": quality,
                f"quality_shift_{name}_{way}_usd_per_hour": found.usd_per_hour,
            }
            of_phases = [load.phase == n for n in range(len(phases))]
            scores = found.served.score
            by_phase = [f"{100 * in_time[own].mean():.1f} / {scores[own].mean():.3f}" for own in of_phases]
            rows.append([way, found.usd_per_hour, 100 * in_time.mean(), quality, found.plans, *by_phase])
        heads = ["way", "USD/h", "in time, %", "quality", "new plans"]
        heads += [f"{p.requests_per_s:g}/s{', harder' if p.hardness else ''}" for p in phases]
        show(f"{name}: all, and in time / quality by phase", DataFrame(rows, columns=unique(heads)))
    return figures


def unique(names: Iterable[str]) -> list[str]:
    """With a number where a name comes again."""
    unique_names: list[str] = []
    for name in names:
        unique_names.append(name if name not in unique_names else f"{name} ({unique_names.count(name) + 1})")
    return unique_names


def plan_of(
    service: shift.Service, seen: JudgedAnswers, per_s: float
) -> tuple[shift.Plan, QualityOffer, PointPlan]:
    """A plan that there must be."""
    found = shift.plan_for(service, seen, per_s)
    assert found is not None
    return found


FUNCTIONS = (shifts,)
PHASES = (shift.Phase(20, 10), shift.Phase(20, 20))
SMOKE = {
    "shifts": {
        "SHIFTS": {"lasting": PHASES},
        "SHIFT_GPUS": 16,
        "QUESTIONS": 2000,
        "quality.MARKET": {"points": 3},
    }
}
