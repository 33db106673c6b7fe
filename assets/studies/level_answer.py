"""What the trials of levels answer, in a sentence: how many, how much headroom, do moves pay?"""

from collections.abc import Sequence

from fleetcast.assets.studies.level_trials import LIMIT_STACK
from fleetcast.models.aliases import Row

BASELINE_STACK = "jsq"  # what the others are told beside, where it was tried
PAIRS = (("jsq_moves", "jsq"), ("llumnix", "freeness"))  # with moves, and the same without


def describe_level_trials(rows: Sequence[Row]) -> str:
    """The sentence of the rows of one way to deal needs and one load."""
    tried = [row for row in rows if row["stack"] != LIMIT_STACK]
    stacks = list(dict.fromkeys(row["stack"] for row in tried))
    plain = BASELINE_STACK if BASELINE_STACK in stacks else stacks[0]
    of = rows[0]
    begins = f"{of['llm']} in {of['region']}, needs by {of['needs_by']}"
    begins += "" if of["load_factor"] == 1 else f", {of['load_factor']:g} times the load"
    parts = [
        describe_levels(plain, rows_with_least_headroom(rows_of_stack(tried, plain)), of["limit_instances"]),
        describe_other_stacks(tried, plain),
        *describe_headroom(tried, stacks),
        *describe_moves(tried, stacks),
    ]
    return f"{begins}: {'; '.join(part for part in parts if part)}."


def rows_of_stack(rows: Sequence[Row], stack: str) -> list[Row]:
    """The rows of a stack, by headroom, then by levels."""
    return sorted(
        (row for row in rows if row["stack"] == stack), key=lambda row: (row["headroom_share"], row["levels"])
    )


def rows_with_least_headroom(rows: Sequence[Row]) -> list[Row]:
    """Those of one level, and of the least headroom that was tried with several."""
    several = [row for row in rows if row["levels"] > 1]
    least = min((row["headroom_share"] for row in several), default=0.0)
    one = [row for row in rows if row["levels"] == 1][:1]
    return one + [row for row in several if row["headroom_share"] == least]


def row_with_fewest_instances(rows: Sequence[Row]) -> Row | None:
    """The row with the fewest instances, of these with the fewest levels; None where no row has any."""
    met = [row for row in rows if row["instances"] is not None]
    return min(met, key=lambda row: (row["instances"], row["levels"], row["headroom_share"]), default=None)


def describe_levels(stack: str, rows: Sequence[Row], limit: int | None) -> str:
    """What one level needs, and what each further number of them saves."""
    met = [row for row in rows if row["instances"] is not None]
    if not met:
        return f"{stack} meets the needs with no number of instances that was tried"
    before, told, idle = met[0], [], list[str]()
    counted = f"{before['levels']} level{'s' * (before['levels'] > 1)}"
    first = f"{stack} needs {before['instances']} instance{'s' * (before['instances'] > 1)} with {counted}"
    for row in met[1:]:
        if row["instances"] == before["instances"]:
            idle.append(str(row["levels"]))
            continue
        told.append(f"{row['levels']} levels need {row['instances']} instead of {before['instances']}")
        before, idle = row, []
    if idle:
        told.append(f"{join_level_numbers(idle)} {'save' if len(idle) > 1 else 'saves'} none")
    resolution = max(row["resolution"] for row in met)
    edf = "" if limit is None else f", by needs themselves (edf) it is {limit}"
    return f"{', '.join([first, *told])} (resolution {resolution}){edf}"


def describe_other_stacks(rows: Sequence[Row], plain: str) -> str:
    """Which stack needs fewer still."""
    own, best = row_with_fewest_instances(rows_of_stack(rows, plain)), row_with_fewest_instances(rows)
    if best is None or own is None or best["instances"] >= own["instances"]:
        return "no other stack needs fewer" if len({row["stack"] for row in rows}) > 1 else ""
    share = f" and {best['headroom_share']:.0%} headroom" if best["headroom_share"] else ""
    return f"{best['stack']} needs {best['instances']} with {best['levels']} levels{share}"


def describe_headroom(rows: Sequence[Row], stacks: Sequence[str]) -> list[str]:
    """The least headroom with which a stack needs fewest, where several were tried."""
    told = []
    for stack in stacks:
        several = [row for row in rows_of_stack(rows, stack) if row["levels"] > 1]
        shares = sorted({row["headroom_share"] for row in several})
        best = row_with_fewest_instances([{**row, "levels": 0} for row in several])
        if len(shares) > 1 and best is not None:
            told.append(f"{best['headroom_share']:.0%} headroom is enough for {stack} ({best['instances']})")
    return told


def describe_moves(rows: Sequence[Row], stacks: Sequence[str]) -> list[str]:
    """What moves save on the same stack without."""
    told = []
    for moving, still in PAIRS:
        if {moving, still} <= set(stacks):
            with_moves, without = (
                row_with_fewest_instances(rows_of_stack(rows, stack)) for stack in (moving, still)
            )
            if with_moves and without:
                saved = without["instances"] - with_moves["instances"]
                what = "none" if saved == 0 else str(saved) if saved > 0 else f"none, they cost {-saved}"
                told.append(f"moves save {what} on {still}")
    return told


def join_level_numbers(words: Sequence[str]) -> str:
    """2, 3 and 4."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
