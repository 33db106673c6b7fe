"""A value as text for a person, the same in the terminal and on Dagster's pages."""

import math
from datetime import datetime
from typing import Any


def readable(value: Any) -> str:
    """Whole numbers from 1,000 on, else four digits; instants (UTC) to the second; a dash for nothing."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "–"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M:%S}"
    return str(value)
