"""`fleetcast error`: how much errors in the latency profiles change the scoreboard."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date
from itertools import combinations
from typing import Annotated, Any

import pyarrow as pa
import typer

from fleetcast.assets.lake.settings import RunSettings
from fleetcast.assets.pages.tier_columns import attainment_column, strictest_scored_tier
from fleetcast.models.aliases import Row
from fleetcast.pipelines.options import (
    ConfigOption,
    DayOption,
    QuietOption,
    load_settings_and_day,
    make_progress,
)
from fleetcast.pipelines.terminal import cli_errors, short_path, show_note
from fleetcast.pipelines.terminal_tables import OUT, format_figure, format_percent, show_board

SHOWN_PAIRS = 8
BASE = "lt_ua"  # the published policy
UNCHANGED_CASE = "as_is"  # the case of a what-if that changes nothing


def error_command(
    policy: Annotated[
        list[str] | None,
        typer.Option(help="Only this policy; may be repeated. Default: all that were replayed."),
    ] = None,
    draws: Annotated[int, typer.Option(help="Number of resampled latency profiles, 2 to 1,000.")] = 12,
    against: Annotated[
        str | None, typer.Option(help=f"The policy to compare the others with; default: {BASE}.")
    ] = None,
    date_: DayOption = None,
    config: ConfigOption = "office",
    quiet: QuietOption = False,
) -> None:
    """Replay a day on latencies that are off by the error of their profiles: how does the scoreboard move?

    All policies use the same samples of the latency errors. An interval holds nine of ten samples. A
    difference between two policies that changes its sign within them is marked: it is not significant. Plans
    do not change. A sample takes a minute or less. The samples of the day replace those of an earlier run,
    also of other policies: name all that are to be compared.

        fleetcast error

        fleetcast error --policy lt_ua --policy corrected --draws 40

        fleetcast sql "from scoreboard_differences where not is_carried"
    """
    with cli_errors():
        from fleetcast.assets.replays.scorecards import read_scoreboard
        from fleetcast.assets.studies import latency_error
        from fleetcast.assets.studies_on_demand import error_draws
        from fleetcast.pipelines.runs import AssetRows, publish_on_demand

        settings, day = load_settings_and_day(config, date_)
        base = [against] if against else []
        latency_error.open_loop_policies(settings, day, [*(policy or ()), *base])  # before minutes are spent
        policies = [*policy, *base] if policy else []
        show_note(describe_replaced_draws(settings, day, policies))
        table = latency_error.replay_latency_draws(settings, day, policies, draws, make_progress(quiet))
        publish_on_demand(error_draws, settings, AssetRows(table, {"day": day}))
        show_errors(settings, day, read_scoreboard(settings, day), against)
        OUT.print(f"figure   {short_path(latency_error.draw_latency_error(settings, day))}")
        OUT.print('tables   fleetcast sql "from scoreboard_intervals", "from scoreboard_differences"')


def describe_replaced_draws(settings: RunSettings, day: date, policies: Sequence[str]) -> str:
    """Name the other policies whose samples of the day a run of these removes; "" for none.

    A run without `policies` is of all on the scoreboard, and removes none of these.
    """
    from fleetcast.assets.studies.latency_error import open_loop_policies

    drawn = settings.day_rows("error_draws", day)["policy"].to_pylist() if policies else []
    lost = [name for name in open_loop_policies(settings, day, []) if name in drawn and name not in policies]
    if not lost:
        return ""
    again = "".join(f" --policy {name}" for name in dict.fromkeys([*lost, *policies]))
    return (
        f"This run removes the day's samples of {', '.join(lost)}. To compare all on the same samples: "
        f"{settings.command(f'error --date {day}{again}')}"
    )


def show_errors(settings: RunSettings, day: date, board: pa.Table, against: str | None = None) -> None:
    """Print the errors of the latency profiles and, after `fleetcast error`, their effect on the scoreboard.

    `board`: rows of the mart scoreboard; `against`: the policy that the others are compared with.
    """
    from fleetcast.assets.studies.latency_error import profile_errors, read_score_intervals
    from fleetcast.models.latency.latency_errors import describe_profile_errors

    found = read_score_intervals(settings, day, board)
    line = f"latencies: {describe_profile_errors(profile_errors(settings))}"
    if not found:
        OUT.print(f"{line} in the median   (effect on the scoreboard: {settings.command('error')})")
        return
    policies = list(dict.fromkeys(row["policy"] for row in found))
    base = against or (BASE if BASE in policies else policies[0])
    of_day = settings.day_rows("scoreboard_differences", day).to_pylist()
    first = strictest_scored_tier(board.to_pylist())
    shown = interval_columns(first, settings.catalogue.interactive_tiers)
    show_intervals(found, of_day, base, f"{settings.trace}, {day}", shown)
    OUT.print(f"{line} in the median")
    for name in (attainment_column(first), "usd"):
        if pairs := describe_pairs(of_day, name):
            OUT.print(pairs)


def interval_columns(first: str, tiers: Iterable[str]) -> dict[str, tuple[str, Callable[[Any], str]]]:
    """Return the head and the format of each column by its name; `first` is the strictest tier."""

    def share(value: float | None) -> str:
        return format_percent(value, ".1f")

    def whole(value: float | None) -> str:
        return format_figure(value, ",.0f")

    return {
        attainment_column(first): (f"SLO attained\n{first}, %", share),
        "worst_llm_attainment_share": ("\nworst llm, %", share),
        **{attainment_column(tier): (f"\n{tier}, %", share) for tier in tiers if tier != first},
        "ttft_p95_s": (f"TTFT p95\n{first}, s", lambda value: format_figure(value, ".2f")),
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
    """Print a row per policy with an interval after each figure.

    ~ marks a figure whose difference from the policy `base` is not significant, ! one outside its interval.

    found : rows of the mart scoreboard_intervals
    of_day : rows of the mart scoreboard_differences
    shown : head and format of each column by its name
    """
    from fleetcast.assets.studies.latency_error import ENDS

    by_name = {(row["policy"], row["figure"]): row for row in found}
    not_carried = {
        (row["policy"], row["figure"])
        for row in of_day
        if row["against"] == base and row["difference"] and not row["is_carried"]
    }
    figures = [name for name in shown if any(row["figure"] == name for row in found)]
    rows = []
    for policy in dict.fromkeys(row["policy"] for row in found):
        cells = [policy]
        for name in figures:
            row, form = by_name.get((policy, name)), shown[name][1]
            mark = "~" if (policy, name) in not_carried else " "
            outside = "!" if row is not None and row["is_value_inside"] is False else ""
            value, low, high = ("–",) * 3 if row is None else (form(row[key]) for key in ENDS)
            cells.append(f"{value} ({low} to {high}){outside}{mark}")
        rows.append(cells)
    draws = max(row["draws"] for row in found)
    show_board(
        f"{title}, {draws} samples of the latency errors   (nine of ten; ~ not significant against {base})",
        ("\npolicy", *(shown[name][0] for name in figures)),
        rows,
    )
    if any(row["is_value_inside"] is False and row["figure"] in figures for row in found):
        OUT.print(
            "! outside of its interval: plans are made with the profiles, so most errors of them move this "
            "figure the same way"
        )


def describe_pairs(of_day: Sequence[Row], name: str) -> str:
    """Say how many differences between policies are significant in the column `name`, and which are not."""
    by_pair = {(row["policy"], row["against"]): row for row in of_day if row["figure"] == name}
    policies = list(dict.fromkeys(policy for policy, _ in by_pair))
    pairs = [pair for pair in combinations(policies, 2) if by_pair[pair]["difference"]]
    not_carried = [f"{one} and {other}" for one, other in pairs if not by_pair[one, other]["is_carried"]]
    if not pairs:
        return ""
    more = f" and {len(not_carried) - SHOWN_PAIRS} more" if len(not_carried) > SHOWN_PAIRS else ""
    listed = f"; not {', '.join(not_carried[:SHOWN_PAIRS])}{more}" if not_carried else ""
    significant = len(pairs) - len(not_carried)
    return f"{name}: {significant} of {len(pairs)} differences are significant{listed}"


def describe_cost_error(settings: RunSettings, rows: Sequence[Row]) -> str:
    """Say how far latency errors alone may move the cost of a plan; `rows` of the plan have llm and usd."""
    from fleetcast.assets.advice.next_day_plan import whole_instance_error_share
    from fleetcast.assets.studies.latency_error import profile_errors, usd_error_share
    from fleetcast.models.latency.latency_errors import describe_profile_errors

    has_counts = all("instances" in row for row in rows)
    share = (whole_instance_error_share if has_counts else usd_error_share)(settings, rows)
    effect = (
        f"from that alone the plan's cost may be {format_percent(share, '.1f')} % off (nine of ten times)"
    )
    if share is None:
        effect = "that adds no whole instance to any pool, so nothing to the plan's cost"
    return f"Latencies: {describe_profile_errors(profile_errors(settings))} in the median; {effect}."


def show_savings(settings: RunSettings, day: date, board: pa.Table) -> None:
    """Print the saving of each forecast method, and the part of it that latency errors may explain.

    `board`: rows of the mart decision_leaderboard.
    """
    saved = {row["method"]: row["saved_on_last_value_share"] for row in board.to_pylist()}
    _show_saved_shares(settings, day, "Savings on last value", saved, "methods")


def show_differences(settings: RunSettings, day: date, cases: pa.Table) -> None:
    """Print the saving of each what-if case, and the part of it that latency errors may explain.

    `cases`: rows of the mart whatifs.
    """
    usd = dict(zip(cases["case_name"].to_pylist(), cases["usd"].to_pylist(), strict=True))
    base = UNCHANGED_CASE if UNCHANGED_CASE in usd else next(iter(usd))
    saved = {name: 1 - value / usd[base] for name, value in usd.items() if name != base and usd[base]}
    _show_saved_shares(settings, day, f"USD saved on {base}", saved, "cases")


def _show_saved_shares(
    settings: RunSettings, day: date, what: str, saved: Mapping[str, float | None], sharers: str
) -> None:
    """Print the error of the day's planned cost, and the part of each saving that this error may explain.

    `saved` has a share of the cost by name. This is an upper bound: it treats no part of the error as common
    to the two costs that are compared.
    """
    from fleetcast.assets.studies.latency_error import usd_error_share

    spent = settings.lake.sql("reads/planned_usd.sql", trace=settings.trace, day=day).to_pylist()
    error_share = usd_error_share(settings, spent)
    savings = [
        f"{name} {format_percent(share, '.1f')} % "
        f"({format_percent(min(1.0, error_share / abs(share)), '.0f')} %)"
        for name, share in saved.items()
        if share
    ]
    if spent and savings:
        OUT.print(describe_cost_error(settings, spent))
        OUT.print(
            f"{what}, and the part of each that this error may explain: {', '.join(savings)}; less in fact, "
            f"as all {sharers} share these latencies",
        )


def describe_replayed_saving(settings: RunSettings, day: date, policy: str) -> str:
    """Compare the replayed cost of a policy with BASE over the samples of latency errors; "" without any."""
    from fleetcast.assets.replays.scorecards import read_scoreboard
    from fleetcast.assets.studies.latency_error import read_score_intervals

    if not settings.lake.files("trials", experiment="error", trace=settings.trace, day=day):
        return ""
    if not read_score_intervals(settings, day, read_scoreboard(settings, day)):
        return ""
    key = (policy, BASE, "usd")
    found = [
        row
        for row in settings.day_rows("scoreboard_differences", day).to_pylist()
        if (row["policy"], row["against"], row["figure"]) == key
    ]
    if not found:
        return ""
    value, low, high = (found[0][end] for end in ("difference", "low", "high"))
    verdict = "is" if found[0]["is_carried"] else "is not"
    return (
        f"Replayed, {policy} costs {value:+,.0f} USD compared with {BASE}, {low:+,.0f} to {high:+,.0f} in "
        f"nine of ten samples of the latency errors: this {verdict} significant."
    )
