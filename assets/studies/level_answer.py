"""Sum up level trials in a sentence: how many levels, how much headroom, and whether moves pay."""

from collections.abc import Sequence

from fleetcast.assets.studies.level_trials import LIMIT_STACK
from fleetcast.models.aliases import Row

BASELINE_STACK = "jsq"  # the stack that others are compared with, if it has trials
PAIRS = (("jsq_moves", "jsq"), ("llumnix", "freeness"))  # a stack with moves, and the same without


def describe_level_trials(rows: Sequence[Row]) -> str:
    """Return the sentence for the rows of one source of needs and one load."""
    trials = [row for row in rows if row["stack"] != LIMIT_STACK]
    stacks = list(dict.fromkeys(row["stack"] for row in trials))
    plain = BASELINE_STACK if BASELINE_STACK in stacks else stacks[0]
    row = rows[0]
    begins = f"{row['llm']} in {row['region']}, needs by {row['needs_by']}"
    begins += "" if row["load_factor"] == 1 else f", {row['load_factor']:g} times the load"
    parts = [
        describe_levels(
            plain, rows_with_least_headroom(rows_of_stack(trials, plain)), row["limit_instances"]
        ),
        describe_other_stacks(trials, plain),
        *describe_headroom(trials, stacks),
        *describe_moves(trials, stacks),
    ]
    return f"{begins}: {'; '.join(part for part in parts if part)}."


def rows_of_stack(rows: Sequence[Row], stack: str) -> list[Row]:
    """Return the rows of a stack, sorted by headroom, then by levels."""
    return sorted(
        (row for row in rows if row["stack"] == stack), key=lambda row: (row["headroom_share"], row["levels"])
    )


def rows_with_least_headroom(rows: Sequence[Row]) -> list[Row]:
    """Return the first row of one level, and the rows of several levels with the least headroom."""
    several = [row for row in rows if row["levels"] > 1]
    least = min((row["headroom_share"] for row in several), default=0.0)
    single = [row for row in rows if row["levels"] == 1][:1]
    return single + [row for row in several if row["headroom_share"] == least]


def row_with_fewest_instances(rows: Sequence[Row]) -> Row | None:
    """Return the row with the fewest instances, then the fewest levels; None if no row meets the needs."""
    met = [row for row in rows if row["instances"] is not None]
    return min(met, key=lambda row: (row["instances"], row["levels"], row["headroom_share"]), default=None)


def describe_levels(stack: str, rows: Sequence[Row], limit: int | None) -> str:
    """Describe the instances that one level needs, and the saving of each larger number of levels."""
    met = [row for row in rows if row["instances"] is not None]
    if not met:
        return f"{stack} meets the needs with none of the tested numbers of instances"
    before, savings, no_saving = met[0], [], list[str]()
    counted = f"{before['levels']} level{'s' * (before['levels'] > 1)}"
    sentence = f"{stack} needs {before['instances']} instance{'s' * (before['instances'] > 1)} with {counted}"
    for row in met[1:]:
        if row["instances"] == before["instances"]:
            no_saving.append(str(row["levels"]))
            continue
        savings.append(f"{row['levels']} levels need {row['instances']} instead of {before['instances']}")
        before, no_saving = row, []
    if no_saving:
        savings.append(f"{join_all_names(no_saving)} {'save' if len(no_saving) > 1 else 'saves'} none")
    resolution = max(row["resolution"] for row in met)
    edf = "" if limit is None else f", by needs themselves (edf) it is {limit}"
    return f"{', '.join([sentence, *savings])} (resolution {resolution}){edf}"


def describe_other_stacks(rows: Sequence[Row], plain: str) -> str:
    """Describe the stack that needs fewer instances than the baseline."""
    baseline, best = row_with_fewest_instances(rows_of_stack(rows, plain)), row_with_fewest_instances(rows)
    if best is None or baseline is None or best["instances"] >= baseline["instances"]:
        return "no other stack needs fewer" if len({row["stack"] for row in rows}) > 1 else ""
    share = f" and {best['headroom_share']:.0%} headroom" if best["headroom_share"] else ""
    return f"{best['stack']} needs {best['instances']} with {best['levels']} levels{share}"


def describe_headroom(rows: Sequence[Row], stacks: Sequence[str]) -> list[str]:
    """Describe the least headroom at which each stack needs fewest instances, of stacks with several."""
    sentences = []
    for stack in stacks:
        several = [row for row in rows_of_stack(rows, stack) if row["levels"] > 1]
        shares = sorted({row["headroom_share"] for row in several})
        best = row_with_fewest_instances([{**row, "levels": 0} for row in several])
        if len(shares) > 1 and best is not None:
            sentences.append(
                f"{best['headroom_share']:.0%} headroom is enough for {stack} ({best['instances']})"
            )
    return sentences


def describe_moves(rows: Sequence[Row], stacks: Sequence[str]) -> list[str]:
    """Describe the instances that moves save, by pair of stacks."""
    sentences = []
    for moving, still in PAIRS:
        if {moving, still} <= set(stacks):
            with_moves, without = (
                row_with_fewest_instances(rows_of_stack(rows, stack)) for stack in (moving, still)
            )
            if with_moves and without:
                saved = without["instances"] - with_moves["instances"]
                amount = "none" if saved == 0 else str(saved) if saved > 0 else f"none, they cost {-saved}"
                sentences.append(f"moves save {amount} on {still}")
    return sentences


def join_all_names(names: Sequence[str]) -> str:
    """Return the names as in "2, 3 and 4"."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
