"""`fleetcast error`: how far the scoreboard may be off because the latency profiles are."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date
from itertools import combinations
from typing import Annotated, Any

import pyarrow as pa
import typer

from fleetcast.assets.lake.settings import Settings
from fleetcast.assets.pages.by_tier import attainment_of, strictest_of
from fleetcast.models.aliases import Row
from fleetcast.pipelines.options import Config, Day, Quiet, progress_of, run_of
from fleetcast.pipelines.tables import OUT, figure, percent, show_board
from fleetcast.pipelines.terminal import near, spoken

TOLD_PAIRS = 8
BASE = "lt_ua"  # the published policy
AS_IS = "as_is"  # the case of a what-if that changes nothing


def error(
    policy: Annotated[
        list[str] | None, typer.Option(help="Only this policy; may be repeated. Else all that were replayed.")
    ] = None,
    draws: Annotated[int, typer.Option(help="Draws of the latencies, 2 to 1,000.")] = 12,
    against: Annotated[
        str | None, typer.Option(help=f"The policy that the others are held against; else {BASE}.")
    ] = None,
    date_: Day = None,
    config: Config = "office",
    quiet: Quiet = False,
) -> None:
    """Replay a day on latencies that are off by the error of their profiles: what of the scoreboard lasts?

    All policies meet the same draws. An interval holds nine of ten draws; a difference that turns round
    within them is not carried, and is marked. Plans stay as they were made. A minute for each draw or less.

        fleetcast error

        fleetcast error --policy lt_ua --policy corrected --draws 40

        fleetcast sql "from scoreboard_differences where not is_carried"
    """
    with spoken():
        from fleetcast.assets.on_demand import error_draws
        from fleetcast.assets.pages.on_demand import Made
        from fleetcast.assets.replays.scorecards import scoreboard
        from fleetcast.assets.studies import latency_error
        from fleetcast.pipelines.runs import report_made

        settings, day = run_of(config, date_)
        base = [against] if against else []
        latency_error.open_loop(settings, day, base)  # before minutes are spent
        asked = [*policy, *base] if policy else []
        table = latency_error.replay_draws(settings, day, asked, draws, progress_of(quiet))
        report_made(error_draws, settings, Made(table, {"day": day}))
        show_errors(settings, day, scoreboard(settings, day), against)
        OUT.print(f"figure   {near(latency_error.draw(settings, day))}")
        OUT.print('tables   fleetcast sql "from scoreboard_intervals", "from scoreboard_differences"')


def show_errors(settings: Settings, day: date, board: pa.Table, against: str | None = None) -> None:
    """Under a scoreboard: the latencies that it stands on and, where it is known, how far they move it."""
    from fleetcast.assets.studies.latency_error import differences, intervals, profile_errors
    from fleetcast.models.latency.error import said

    found = intervals(settings, day, board)
    line = f"latencies: {said(profile_errors(settings))}"
    if not found:
        OUT.print(f"{line} in the median   (what that does to the board: fleetcast error)", soft_wrap=True)
        return
    policies = list(dict.fromkeys(row["policy"] for row in found))
    base = against or (BASE if BASE in policies else policies[0])
    of_day = differences(settings, day)
    first = strictest_of(board.to_pylist())
    shown = shown_figures(first, settings.catalogue.interactive_tiers)
    show_intervals(found, of_day, base, f"{settings.trace}, {day}", shown)
    OUT.print(f"{line} in the median", soft_wrap=True)
    for name in (attainment_of(first), "usd"):
        if told := pairs_told(of_day, name):
            OUT.print(told, soft_wrap=True)


def shown_figures(first: str, tiers: Iterable[str]) -> dict[str, tuple[str, Callable[[Any], str]]]:
    """Figures of the board by name: their heads, how they are written; the strictest tier comes first."""

    def share(value: float | None) -> str:
        return percent(value, ".1f")

    def whole(value: float | None) -> str:
        return figure(value, ",.0f")

    return {
        attainment_of(first): (f"SLA attained\n{first}, %", share),
        "worst_llm_attainment_share": ("\nworst llm, %", share),
        **{attainment_of(tier): (f"\n{tier}, %", share) for tier in tiers if tier != first},
        "ttft_p95_s": (f"TTFT p95\n{first}, s", lambda value: figure(value, ".2f")),
        "gpu_hours": ("\nGPU-hours", whole),
        "usd": ("\nUSD", whole),
    }


def show_intervals(
    found: Sequence[Row],
    of_day: Sequence[Row],
    base: str,
    title: str,
    shown: Mapping[str, tuple[str, Callable[[Any], str]]],
) -> None:
    """A row per policy, an interval beside each figure; ~ where its difference from `base` is not carried."""
    by_name = {(row["policy"], row["figure"]): row for row in found}
    not_carried = {
        (row["policy"], row["figure"])
        for row in of_day
        if row["against"] == base and row["difference"] and not row["is_carried"]
    }
    from fleetcast.assets.studies.latency_error import ENDS

    figures = [name for name in shown if any(row["figure"] == name for row in found)]
    rows = []
    for policy in dict.fromkeys(row["policy"] for row in found):
        cells = [policy]
        for name in figures:
            row, write = by_name.get((policy, name)), shown[name][1]
            mark = "~" if (policy, name) in not_carried else " "
            value, low, high = ("–",) * 3 if row is None else (write(row[key]) for key in ENDS)
            cells.append(f"{value} ({low} to {high}){mark}")
        rows.append(cells)
    draws = max(row["draws"] for row in found)
    show_board(
        f"{title}, {draws} draws of its latencies   (nine of ten draws; ~ not to be told from {base})",
        ("\npolicy", *(shown[name][0] for name in figures)),
        rows,
    )


def pairs_told(of_day: Sequence[Row], name: str) -> str:
    """How many of all differences between two policies the error carries, and which it does not."""
    by_pair = {(row["policy"], row["against"]): row for row in of_day if row["figure"] == name}
    policies = list(dict.fromkeys(policy for policy, _ in by_pair))
    pairs = [pair for pair in combinations(policies, 2) if by_pair[pair]["difference"]]
    not_carried = [f"{one} and {other}" for one, other in pairs if not by_pair[one, other]["is_carried"]]
    if not pairs:
        return ""
    more = f" and {len(not_carried) - TOLD_PAIRS} more" if len(not_carried) > TOLD_PAIRS else ""
    listed = f"; not {', '.join(not_carried[:TOLD_PAIRS])}{more}" if not_carried else ""
    return f"{name}: the error carries {len(pairs) - len(not_carried)} of {len(pairs)} differences{listed}"


def cost_error_said(settings: Settings, rows: Sequence[Row]) -> str:
    """How far a plan's cost may be off for its latencies alone; `rows` of a plan: llm, usd."""
    from fleetcast.assets.studies.latency_error import profile_errors, usd_error_share
    from fleetcast.models.latency.error import said

    return (
        f"Latencies: {said(profile_errors(settings))} in the median; for that alone the plan's cost may be "
        f"{percent(usd_error_share(settings, rows), '.1f')} % off (nine of ten times)."
    )


def show_savings(settings: Settings, day: date, board: pa.Table) -> None:
    """Under what forecasts are worth: how much of each saving the error of the latencies may be."""
    saved = {row["method"]: row["saved_on_last_value_share"] for row in board.to_pylist()}
    _show_carried(settings, day, "Savings on last value", saved, "methods")


def show_differences(settings: Settings, day: date, cases: pa.Table) -> None:
    """Under a what-if: how much of each case's difference in cost the error of the latencies may be."""
    usd = dict(zip(cases["case_name"].to_pylist(), cases["usd"].to_pylist(), strict=True))
    base = AS_IS if AS_IS in usd else next(iter(usd))
    less = {name: 1 - value / usd[base] for name, value in usd.items() if name != base and usd[base]}
    _show_carried(settings, day, f"USD saved on {base}", less, "cases")


def _show_carried(
    settings: Settings, day: date, what: str, saved: Mapping[str, float | None], sharers: str
) -> None:
    """The error of the cost of the day's plan, and the part of each saving, a share of it, that this may be.

    The cautious reading: it takes nothing of the error for common to what is compared.
    """
    from fleetcast.assets.studies.latency_error import usd_error_share

    spent = settings.lake.sql("reads/planned_usd.sql", trace=settings.trace, day=day).to_pylist()
    error_share = usd_error_share(settings, spent)
    told = [
        f"{name} {percent(share, '.1f')} % ({percent(min(1.0, error_share / abs(share)), '.0f')} %)"
        for name, share in saved.items()
        if share
    ]
    if spent and told:
        OUT.print(cost_error_said(settings, spent), soft_wrap=True)
        OUT.print(
            f"{what}, and the part of each that this may be: {', '.join(told)}; less, as all {sharers} share "
            "these latencies",
            soft_wrap=True,
        )


def drawn_saving_said(settings: Settings, day: date, policy: str) -> str:
    """What a policy costs in the replay beside BASE, in all draws of the latencies; "" without draws."""
    from fleetcast.assets.replays.scorecards import scoreboard
    from fleetcast.assets.studies.latency_error import differences, intervals

    if not settings.lake.files("trials", experiment="error", trace=settings.trace, day=day):
        return ""
    if not intervals(settings, day, scoreboard(settings, day)):
        return ""
    wanted = (policy, BASE, "usd")
    found = [r for r in differences(settings, day) if (r["policy"], r["against"], r["figure"]) == wanted]
    if not found:
        return ""
    value, low, high = (found[0][end] for end in ("difference", "low", "high"))
    carries = "carries" if found[0]["is_carried"] else "does not carry"
    return (
        f"Replayed, {policy} costs {value:+,.0f} USD beside {BASE}, {low:+,.0f} to {high:+,.0f} in nine of "
        f"ten draws of the latencies: their error {carries} that."
    )
