"""What a generated trace is to do otherwise than the one it is fitted to (the files of data/changes)."""

import math
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path

from fleetcast.models.world.toml_dataclasses import build_dataclass, read_toml
from fleetcast.models.world.traffic_config import BurstConfig


def require_possible_change(holds: bool, broken: str) -> None:
    """Refuse a change that a trace cannot have."""
    if not holds:
        raise ValueError(f"What-if: {broken}. Change it.")


@dataclass(frozen=True)
class NewApp:
    """An application that the trace does not have: it behaves like one that it has."""

    name: str
    like: str
    share: float  # its requests, in those of the whole trace without it


@dataclass(frozen=True)
class Outage:
    """A stretch in which a region takes no requests: they arrive in the other regions by their shares."""

    region: str
    start: datetime
    minutes: int


@dataclass(frozen=True)
class TraceChanges:
    """Changes to a fitted trace; without any it behaves like the original."""

    growth_per_week: float = 0.0  # a step from week to week, as in the office traffic
    interactive_to_niw: float | None = None  # requests: 9, 3 or 1 to 1; the whole stays the same
    new_apps: tuple[NewApp, ...] = ()
    bursts: tuple[BurstConfig, ...] = ()
    outages: tuple[Outage, ...] = ()
    holidays: tuple[date, ...] = ()  # days that are like a Sunday

    def __post_init__(self) -> None:
        require_possible_change(
            self.growth_per_week > -1, f"growth_per_week is {self.growth_per_week}, needs more than -1"
        )
        ratio = self.interactive_to_niw
        require_possible_change(
            ratio is None or 0 < ratio < math.inf, f"interactive_to_niw is {ratio}, needs more than 0"
        )
        for app in self.new_apps:
            require_possible_change(
                app.share > 0, f"share of the new app {app.name!r} is {app.share}, needs more than 0"
            )


def load_changes(path: Path) -> TraceChanges:
    """Read a what-if file; ConfigError names an unknown, missing or mistyped key."""
    changes: TraceChanges = build_dataclass(TraceChanges, read_toml(path), path.name)
    return changes
