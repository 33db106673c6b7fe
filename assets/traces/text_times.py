"""Times written as text in other ways than ISO 8601: their patterns are found in the first rows of a file."""

import re
from collections.abc import Sequence
from datetime import datetime
from itertools import product

from fleetcast.models.world.toml_dataclasses import ConfigError

# What DuckDB reads by itself: the year first, then maybe a time of the day and a zone.
YEAR_FIRST = re.compile(
    r"\d{4}[-/]\d\d?[-/]\d\d?([ T]+\d\d?:\d\d(:\d\d(\.\d*)?)?\s*(Z|UTC|[+-]\d\d(:?\d\d)?)?)?", re.IGNORECASE
)
DAY_ALONE = re.compile(r"\s*\d{4}[-/]?\d\d?[-/]?\d\d?\s*")
APACHE = re.compile(r"\d\d/[A-Za-z]{3}/\d{4}:.*[+-]\d{4}")  # has its zone; the macro `instant` reads it
DATES = (
    *("%m/%d/%Y", "%d/%m/%Y", "%m-%d-%Y", "%d-%m-%Y", "%m/%d/%y", "%d/%m/%y", "%d.%m.%Y", "%d.%m.%y"),
    *("%Y-%m-%d", "%b %d, %Y", "%d %b %Y", "%d-%b-%Y", "%a, %d %b %Y"),
)
JOINTS = (" ", ", ", " @ ", "T")
CLOCKS = (  # patterns of one clock: with and without parts of a second
    ("%H:%M:%S", "%H:%M:%S.%f", "%H:%M:%S,%f"),
    ("%H:%M",),
    ("%I:%M:%S %p", "%I:%M:%S.%f %p"),
    ("%I:%M %p",),
)
ZONES = ("", " GMT", " UTC", " +0000 UTC")


def find_patterns(values: Sequence[str], where: str) -> tuple[str, ...]:
    """Return the patterns (of strptime) with which all of these texts are read; none for ISO 8601 or others.

    ConfigError, with the name of the file (`where`), if the day and the month could be read either way.
    """
    texts = [text.strip() for text in values]
    if not texts or any(YEAR_FIRST.fullmatch(text) or APACHE.fullmatch(text) for text in texts):
        return ()
    zone = max((end for end in ZONES if texts[0].endswith(end)), key=len)
    joints = [joint for joint in JOINTS if joint in texts[0]]
    found = list[tuple[str, ...]]()
    for date, joint, clocks in product(DATES, joints, CLOCKS):
        patterns = tuple(f"{date}{joint}{clock}{zone}" for clock in clocks)
        if all(any(is_written(text, pattern) for pattern in patterns) for text in texts):
            found.append(patterns)
    if len(found) > 1:
        raise ConfigError(
            f"{where} has times like {texts[0]!r}, which may be {found[0][0]} or {found[1][0]}. Write which "
            f'into its mapping file: clock = "{found[0][0]}".'
        )
    return found[0] if found else ()


def written_zone(patterns: Sequence[str]) -> str | None:
    """Return the zone that patterns have in their text: UTC, or None."""
    return "UTC" if patterns and patterns[0].endswith(("GMT", "UTC")) else None


def is_written(text: str, pattern: str) -> bool:
    """Whether a pattern of strptime reads a text."""
    try:
        datetime.strptime(text, pattern)
    except ValueError:
        return False
    return True


def is_time_pattern(text: str) -> bool:
    """Whether a text is a pattern of strptime that has at least a day and an hour."""
    try:
        written = datetime(2025, 11, 29, 13, 0).strftime(text)
        read = datetime.strptime(written, text)
    except ValueError:
        return False
    return (read.year, read.month, read.day, read.hour) == (2025, 11, 29, 13)
