"""Values as text, the same in the terminal and on Dagster's pages."""

import math
from datetime import datetime
from typing import Any


def format_value(value: Any) -> str:
    """Return a value as text.

    Floats have four digits, and no decimals from 1,000 on. Instants (UTC) are to the second, bytes are hex
    digits, None and NaN are a dash.
    """
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "–"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M:%S}"
    return str(_without_bytes(value))


def _without_bytes(value: Any) -> Any:
    """Return a value, list or struct with hex digits in place of bytes."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, list | tuple):
        return type(value)(_without_bytes(inner) for inner in value)
    if isinstance(value, dict):
        return {name: _without_bytes(inner) for name, inner in value.items()}
    return value
