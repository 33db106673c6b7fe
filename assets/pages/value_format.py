"""Values as text, the same in the terminal and on Dagster's pages."""

import math
from datetime import datetime
from typing import Any

SMALLEST_PLAIN = 1e-6  # smaller numbers are written with an exponent


def format_value(value: Any) -> str:
    """Return a value as text.

    Floats have four digits, and no decimals from 1,000 on; also within lists and maps. Instants (UTC) are to
    the second, bytes are hex digits, None and NaN are a dash.
    """
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "–"
    if isinstance(value, float):
        return _format_float(value)
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M:%S}"
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(format_value, value))}]"
    if isinstance(value, dict):
        pairs = (f"{format_value(key)}: {format_value(inner)}" for key, inner in value.items())
        return f"{{{', '.join(pairs)}}}"
    return str(value)


def _format_float(value: float) -> str:
    """Return a number with four digits: 0.00001, not 1e-05."""
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    if not SMALLEST_PLAIN <= abs(value) < 1e-4:
        return f"{value:.4g}"
    decimals = 3 - math.floor(math.log10(abs(value)))
    return f"{value:.{decimals}f}".rstrip("0")
