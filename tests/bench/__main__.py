"""Measure the product: python tests/bench [SUBJECT ...], one figure after the other, into data/bench.json."""

import ast
import importlib
import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

from measure import ROOT, Figures, Skipped, Target, measured
from rich.console import Console
from rich.table import Table

SUBJECTS = (
    *(
        "first_run",
        "advise",
        "advice",
        "traces",
        "live_metrics",
        "character",
        "why_late",
        "made",
        "board",
        "forecast",
        "panel",
    ),
    "small_series",
    "gpu_choice",
    "learned",
    *("plan", "policies", "gpus", "gpus_table3", "gpus_paper", "gpus_buckets", "gpus_study"),
    *("gpus_market", "gpus_policies", "quality", "quality_scale", "quality_study", "quality_shifts"),
    "configure",
    *("mobo", "sageserve", "levels", "levels_study", "gpus_opportunism", "scaleout", "scaleout_units"),
    *("object_storage", "replay", "legs", "growth", "fidelity", "engines", "dynamo", "processes"),
    *(
        "witness",
        "scaler",
        "cluster",
        "planners",
        "unseen",
        "mutants",
        "mutants_random",
        "twin",
        "vllm_scheduler",
        "wall",
        "bit_rot",
        "hostile",
        "nights",
    ),
)
CLEAN = "runs clean trees, each of which compiles the kernel"
SEARCH = (
    "searches planners on whole days, minutes at any size; tests/test_planner_board.py runs a small search"
)
PARTS = (
    "starts databases, stores and workers; tests/test_cluster.py and test_object_storage.py start them too"
)
DAYS = "makes and replays whole days through the lake; tests/test_units.py and test_studies.py run small ones"
MUTANTS = "runs the tests; tests/test_benches.py checks how it changes a file"
UNSIZED = {  # why a function has no small size
    **dict.fromkeys(("advise advise", "first_run first_run", "legs mixed", "replay start_up"), CLEAN),
    **dict.fromkeys(
        (f"planners {name}" for name in ("together", "office", "bursts", "azure", "servegen")), SEARCH
    ),
    **dict.fromkeys(("scaleout kills", "object_storage object_storage", "object_storage absences"), PARTS),
    **dict.fromkeys(
        (
            "scaleout_units units",
            "scaleout_units large_day",
            "policies week",
            "board boards",
            "learned learned_shares",
        ),
        DAYS,
    ),
    **dict.fromkeys((f"sageserve {name}" for name in ("bursts", "calm", "mechanisms")), DAYS),
    **dict.fromkeys(("levels command", "levels_study x4", "gpus command"), DAYS),
    **dict.fromkeys(("live_metrics from_metrics", "live_metrics other_seeds", "made statistics"), DAYS),
    **dict.fromkeys(("mutants wiring", "mutants_random random_mutants"), MUTANTS),
    **dict.fromkeys(
        tuple(f"configure {name}" for name in ("speed", "over_defaults", "ranks")),
        "prices thousands of points; `over_aiconfigurator` chooses on one GPU type",
    ),
    "processes longest_processes": "is `processes` with a longer file",
    "witness rough": "is `planted` with other engines",
    "witness real_logs": "calibrates to logs, as tests/test_calibration.py does",
    "gpus composed": "reads 748 measured runs; tests/test_kernels.py compares the same ones",
    **dict.fromkeys(
        ("engines real_logs", "engines own_logs"), "calibrates to logs, as tests/test_calibration.py does"
    ),
    "gpus_buckets bucketed": "measures each combo for each bucket; tests/test_gpus.py rents by bucket",
    "gpus_opportunism opportunism": "measures each combo with each weight; gpus_table3 plays the same path",
    "gpus_study flips": "measures the goodput of fifty combos; gpus_paper measures a few",
    "forecast recovery": "walks each break of a level with and without it; held_out walks the same series",
    "forecast tails": "walks each series two days ahead; held_out walks them an hour ahead",
    "forecast day_ahead": "walks each series a day ahead; held_out walks them an hour ahead",
    "forecast against_arima": "fits ARIMA for each series; arima_day fits one",
    "quality_scale large": "solves the large model; `others` solves small ones",
    "quality_study halves": "sizes every policy by replays; tests/test_plan_quality.py does it once",
    "quality_study same_gpus": "bisects the rate of each plan; quality.cascadia_claims replays such plans",
}
RECORD = ROOT / "data" / "bench.json"
OUT = Console(highlight=False, width=None if sys.stdout.isatty() else 150)


def main(wanted: list[str]) -> int:
    """Measure the given subjects, or all; 0 when every function ran, whatever it found."""
    if "--smoke" in wanted:
        return smoke([word for word in wanted if word != "--smoke"] or SUBJECTS)
    wanted = with_options(wanted)
    if unknown := set(wanted) - set(SUBJECTS):
        OUT.print(f"Error: no subject {unknown.pop()!r}. There are: {', '.join(SUBJECTS)}.", style="red")
        return 2
    figures: Figures = {}
    targets: dict[str, Target] = {}
    failures = 0
    for subject in wanted or SUBJECTS:
        module = importlib.import_module(subject)
        targets |= module.TARGETS
        for function in module.FUNCTIONS:
            found = run(subject, function.__name__, function.__doc__ or "")
            failures += found is None
            figures |= found or {}
    if figures:
        OUT.print(table(figures, targets))
        note(figures)
    return 1 if failures else 0


def with_options(wanted: list[str]) -> list[str]:
    """The subjects alone; options like `--seed 5` reach the measuring process by its environment."""
    names = {"--seed": "FLEETCAST_MUTANTS_SEED", "--count": "FLEETCAST_MUTANTS"}
    names |= {"--record-s": "FLEETCAST_MUTANTS_RECORD_S", "--limit-s": "FLEETCAST_MUTANTS_LIMIT_S"}
    options = {at for at, word in enumerate(wanted[:-1]) if word in names}
    for at in options:
        os.environ[names[wanted[at]]] = wanted[at + 1]
    return [word for at, word in enumerate(wanted) if not {at, at - 1} & options]


def smoke(chosen: Sequence[str]) -> int:
    """Run the small sizes of these subjects in this process, and import all; 0 when nothing failed."""
    failures, unsized = 0, list[str]()
    for subject in SUBJECTS:
        module = importlib.import_module(subject)
        failures += sum(not is_there for is_there in map(imports_all, texts_of(module)))
        for function in module.FUNCTIONS:
            sizes = getattr(module, "SMOKE", {}).get(function.__name__)
            if sizes is None:
                unsized.append(f"{subject} {function.__name__}")
            elif subject in chosen:
                failures += not run_function(module, function, sizes)
    for name in unsized:
        OUT.print(
            f"{name}: no small size: {UNSIZED.get(name, 'failed: SMOKE or UNSIZED must have it')}",
            soft_wrap=True,
        )
    failures += len(set(unsized) ^ UNSIZED.keys())
    return 1 if failures else 0


def run_function(module: ModuleType, function: Callable[[], Figures], sizes: Mapping[str, Any]) -> bool:
    """Run a function with small sizes; whether it gave the figures that its subject has targets for."""
    names = {name: (module.__name__ + "." + name).rsplit(".", 2)[-2:] for name in sizes}  # "traces.REQUESTS"
    owners = {name: (importlib.import_module(owner), own) for name, (owner, own) in names.items()}
    before = {name: getattr(*owners[name]) for name in sizes}
    for name, size in sizes.items():
        setattr(*owners[name], size)
    begun_s, outcome, found = time.process_time(), "", Figures()
    try:
        found = function()
    except Skipped as reason:
        outcome = f"skipped: {reason}"
    except Exception as error:  # whatever it is, the next one runs
        outcome = f"failed: {type(error).__name__}: {error}"
    finally:
        for name, size in before.items():
            setattr(*owners[name], size)
    if unknown := found.keys() - module.TARGETS.keys():
        outcome = f"failed: no target for {', '.join(sorted(unknown))}"
    outcome = outcome or f"{time.process_time() - begun_s:.1f} CPU-s"
    OUT.print(f"{module.__name__} {function.__name__}: {outcome}", soft_wrap=True, markup=False)
    return not outcome.startswith("failed")


def texts_of(module: ModuleType) -> list[str]:
    """The programs that a subject runs in processes of their own, as this tree has them."""
    texts = (text for name, text in vars(module).items() if isinstance(text, str) and name != "OLD")
    return [text for text in texts if "\nimport " in text or "\nfrom " in text]


def imports_all(text: str) -> bool:
    """Whether all is there that a program imports."""
    try:
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ImportFrom):
                found = importlib.import_module(node.module or "")
                missing = [alias.name for alias in node.names if not hasattr(found, alias.name)]
                if missing:
                    raise ImportError(f"{node.module} has no {', '.join(missing)}")
    except SyntaxError:
        return True  # a docstring, no program
    except ImportError as error:
        OUT.print(f"failed: {error}", style="red", markup=False)
        return False
    return True


def run(subject: str, function: str, doc: str) -> Figures | None:
    """Measure one function and say so; None when it failed."""
    OUT.print(f"[bold]{subject}[/]  {doc.splitlines()[0]}", soft_wrap=True)
    try:
        with OUT.status("measuring"):
            found = measured(subject, function)
    except RuntimeError as error:
        OUT.print(f"  failed: {error}", style="red", markup=False, soft_wrap=True)
        return None
    if isinstance(found, str):
        OUT.print(f"  skipped: {found}", style="yellow", markup=False, soft_wrap=True)
        return {}
    return found


def table(figures: Figures, targets: dict[str, Target]) -> Table:
    """Every figure with its target and whether it is met."""
    load, cores = os.getloadavg()[0], os.cpu_count()
    shown = Table(title=f"{cores} cores, load average {load:.1f}", title_justify="left", show_edge=False)
    for name in ("figure", "value", "unit", "target", "", "how measured"):
        shown.add_column(
            name, justify="right" if name in ("value", "target") else "left", no_wrap=name == "figure"
        )
    for key, value in figures.items():
        target = targets[key]
        verdict = "" if target.bounds() == "" else "ok" if target.is_met(value) else "[red]MISSED[/]"
        shown.add_row(key, number(value), target.unit, target.bounds(), verdict, target.how)
    return shown


def number(value: float) -> str:
    """Three figures, or all before the point."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def note(figures: Figures) -> None:
    """Write the figures into data/bench.json, next to those of the subjects that were not measured now."""
    before = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    RECORD.write_text(json.dumps({**before, **figures}, indent=2, sort_keys=True) + "\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
