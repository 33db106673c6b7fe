"""Measure the product: python tests/bench [SUBJECT ...], one figure after the other, into data/bench.json."""

import importlib
import json
import os
import sys

from measure import ROOT, Figures, Target, measured
from rich.console import Console
from rich.table import Table

SUBJECTS = (
    *("first_run", "advise", "traces", "live_metrics", "character", "made", "board", "forecast", "panel"),
    *("plan", "policies", "gpus", "gpus_table3", "gpus_paper", "gpus_buckets", "gpus_study"),
    *("gpus_market", "gpus_policies", "quality", "quality_scale", "quality_study", "quality_shifts"),
    *("mobo", "sageserve", "levels", "levels_study", "gpus_opportunism", "scaleout", "scaleout_units"),
    *("object_storage", "replay", "legs", "growth", "fidelity", "engines", "dynamo", "processes"),
    *("scaler", "planners", "mutants"),
)
RECORD = ROOT / "data" / "bench.json"
OUT = Console(highlight=False, width=None if sys.stdout.isatty() else 150)


def main(wanted: list[str]) -> int:
    """Measure the subjects asked for, or all; 0 when every function ran, whatever it found."""
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
    """Write the figures into data/bench.json, beside those of the subjects that were not measured now."""
    before = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    RECORD.write_text(json.dumps({**before, **figures}, indent=2, sort_keys=True) + "\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
