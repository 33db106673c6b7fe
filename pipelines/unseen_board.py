"""Print the board of unseen days: policies tuned on the days before, the cheapest ranked one on top."""

from collections.abc import Mapping, Sequence
from typing import Any

from fleetcast.pipelines.terminal_tables import OUT, format_figure, format_percent, show_board

MOST_FLOOR_SHARE, LEAST_STANDING_RATIO = 0.20, 1.5  # within which a scenario can tell policies apart


def show_unseen_board(rows: Sequence[Mapping[str, Any]], title: str) -> None:
    """Print a line per policy and what limits the comparison; `rows`: of the mart unseen_board."""
    heads = ("\npolicy", "\nUSD", "over cheap-\nest, %", "95 %,\n± %", "by day,\n%", "GPU-\nhours",
             "days on\ntarget", "known,\n%", "margin,\n%", "mean,\n%", "worst,\n%", "\nworst", "\nknob",
             "cliff,\n%", "\nreading")  # fmt: skip
    lines = [
        (
            row["policy"] if row["is_ranked"] else f"({row['policy']})",
            format_figure(row["total_usd"], ",.0f"),
            format_percent(row["over_cheapest_share"], "+.1f"),
            format_percent(row["half_width_share"], ".1f"),
            " to ".join(format_percent(row[f"{end}_over_cheapest_share"], "+.0f") for end in ("low", "high")),
            format_figure(row["gpu_hours"], ",.0f"),
            f"{row['days_on_target']} of {row['days']}",
            format_percent(row["known_ratio"], ".1f"),
            format_percent(margin_share(row), "+.1f"),
            format_percent(row["mean_ratio"], ".1f"),
            format_percent(row["worst_ratio"], ".1f"),
            f"{row['worst_tier']} {row['worst_day']:%m-%d}",
            format_figure(row["factor"], ".2f"),
            format_percent(row["cliff_share"], "+.0f"),
            row["reading"],
        )
        for row in rows
    ]
    show_board(title, heads, lines)
    OUT.print(
        "95 %: interval of the difference, Student's t on the days. "
        "known, mean, worst: attainment of the tier furthest below its target, over that target: on the "
        "worst known day, and on the unseen days. margin: what a next day attains above its target with nine "
        "chances in ten, by how different the known days are. In brackets: not ranked, because more than "
        "one day of five, or a known day, missed a target.",
    )
    compact = next((row for row in rows if row["policy"] == "compact"), None)
    if compact and (over := compact["over_known_minutes_share"]) is not None:
        OUT.print(
            f"compact costs {abs(over):.0%} {'less' if over < 0 else 'more'} than a fleet that knows each "
            "minute's work, starts instances at once and uses each as compact does by its knob.",
        )
    for line in (*choice_lines(rows), *scenario_limits(rows)):
        OUT.print(line)


def choice_lines(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a line on the policy that the known days would make one choose; none where nothing is chosen."""
    chosen = next((row for row in rows if row["is_chosen"]), None)
    if chosen is None or chosen["over_cheapest_share"] is None:
        return []
    best = next(row for row in rows if row["over_cheapest_share"] == 0 and row["is_ranked"])
    kept = f"on {chosen['days_on_target']} of {chosen['days']} days it attains every target"
    if chosen["policy"] == best["policy"]:
        return [f"The known days choose {best['policy']}, the cheapest on the unseen days too; {kept}."]
    return [
        f"The known days choose {chosen['policy']}: on the unseen days "
        f"{chosen['over_cheapest_share']:+.1%} against {best['policy']}, the cheapest there; {kept}."
    ]


def margin_share(row: Mapping[str, Any]) -> float | None:
    """Return what the next day attains above its target, as a share of it; None on a board made before."""
    ratio: float | None = row["next_day_ratio"]
    return None if ratio is None else ratio - 1


def show_foresight(rows: Sequence[Mapping[str, Any]], title: str) -> None:
    """Print a line per boot time, minimum and policy; `rows`: of the mart foresight."""
    heads = ("boots\nin, s", "mini-\nmum", "\npolicy", "\nUSD", "floor,\n%", "over no fore-\ncast, %",
             "\n95 %", "days on\ntarget", "mean,\n%", "worst,\n%", "\nknob")  # fmt: skip
    lines = [
        (
            format_figure(row["boot_s"], ",.0f"),
            format_figure(row["min_instances"], ".0f"),
            row["policy"] if row["is_ranked"] else f"({row['policy']})",
            format_figure(row["total_usd"], ",.0f"),
            format_percent(row["minimum_share"], ".0f"),
            "" if row["policy"] == row["against"] else format_percent(row["over_reflex_share"], "+.1f"),
            "" if row["policy"] == row["against"] else format_interval(row),
            f"{row['days_on_target']} of {row['days']}",
            format_percent(row["mean_ratio"], ".1f"),
            format_percent(row["worst_ratio"], ".1f"),
            format_figure(row["factor"], ".2f"),
        )
        for row in rows
    ]
    show_board(title, heads, lines)
    OUT.print(
        "over no forecast: cost above that of reflex, or of reflex_gaps for a policy with both mechanisms of "
        "compact. 95 %: its interval by Student's t on the differences of the days. clairvoyant has a "
        "perfect forecast of each hour. compact has no forecast. In brackets: not ranked; with such a rule "
        "nothing is compared."
    )


def format_interval(row: Mapping[str, Any]) -> str:
    """Return the interval of a row of the mart foresight, in percent."""
    ends = (row[f"{end}_over_reflex_share"] for end in ("low", "high"))
    return " to ".join(format_percent(end, "+.0f") for end in ends)


def scenario_limits(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a line for each reason why no policy can differ much from another in this scenario."""
    usd, lines = {row["policy"]: row["total_usd"] for row in rows}, []
    floor = next((row["floor_share"] for row in rows if row["floor_share"] is not None), None)
    if floor is not None and floor > MOST_FLOOR_SHARE:
        lines.append(
            f"The minimum of instances is {floor:.0%} of the clairvoyant's cost; above "
            f"{MOST_FLOOR_SHARE:.0%} it hides differences. Lower min_instances, or raise the load."
        )
    if {"static", "clairvoyant"} <= usd.keys():
        ratio = usd["static"] / usd["clairvoyant"]
        if ratio < LEAST_STANDING_RATIO:
            lines.append(
                f"A constant fleet costs {ratio:.2f} times the clairvoyant; below {LEAST_STANDING_RATIO} "
                "there is little to gain by following the load."
            )
    return lines
