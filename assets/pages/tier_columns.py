"""Figures by tier made wide for a person. Tables have a row, or the entry of a map, for each tier."""

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

ATTAINMENT_COLUMN = "attainment_by_tier"  # of the scoreboard: a map from each tier to its attainment


def attainment_column(tier: str) -> str:
    """The column of a tier's attainment in a wide table."""
    return f"{tier}_attainment_share"


def scoreboard_tiers(board: pa.Table) -> list[str]:
    """The tiers of a scoreboard, the strictest first."""
    return list(dict.fromkeys(tier for row in _attained(board) for tier in row))


def strictest_scored_tier(rows: Iterable[Mapping[str, Any]]) -> str:
    """The strictest tier of the rows of a scoreboard; nothing where no tier has a target."""
    return next((row["strictest_tier"] for row in rows if row["strictest_tier"]), "")


def add_tier_columns(board: pa.Table) -> pa.Table:
    """The scoreboard with one more column for each tier, its attainment."""
    attained = _attained(board)
    for tier in scoreboard_tiers(board):
        shares = pa.array([row.get(tier) for row in attained], pa.float64())
        board = board.append_column(attainment_column(tier), shares)
    return board


def _attained(board: pa.Table) -> list[dict[str, float | None]]:
    return [row or {} for row in board[ATTAINMENT_COLUMN].to_pylist(maps_as_pydicts="strict")]
