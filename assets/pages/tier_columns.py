"""Wide tables for readers: one column per tier, where the lake has a row or a map entry per tier."""

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

ATTAINMENT_COLUMN = "attainment_by_tier"  # of the scoreboard: a map from each tier to its attainment


def attainment_column(tier: str) -> str:
    """Return the name of a tier's attainment column in a wide table."""
    return f"{tier}_attainment_share"


def scoreboard_tiers(board: pa.Table) -> list[str]:
    """Return the tiers of a scoreboard, the strictest first."""
    return list(dict.fromkeys(tier for row in _attained(board) for tier in row))


def strictest_scored_tier(rows: Iterable[Mapping[str, Any]]) -> str:
    """Return the strictest tier of a scoreboard's rows; empty where no tier has a target."""
    return next((row["strictest_tier"] for row in rows if row["strictest_tier"]), "")


def add_tier_columns(board: pa.Table) -> pa.Table:
    """Return the scoreboard with an attainment column added for each tier."""
    attained = _attained(board)
    for tier in scoreboard_tiers(board):
        shares = pa.array([row.get(tier) for row in attained], pa.float64())
        board = board.append_column(attainment_column(tier), shares)
    return board


def _attained(board: pa.Table) -> list[dict[str, float | None]]:
    return [row or {} for row in board[ATTAINMENT_COLUMN].to_pylist(maps_as_pydicts="strict")]
