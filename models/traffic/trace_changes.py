"""Changes of a generated trace, compared with the trace that it is fitted to (the files of data/changes)."""

import math
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path

from fleetcast.models.world.toml_dataclasses import build_dataclass, read_toml
from fleetcast.models.world.traffic_config import BurstConfig


def require_possible_change(holds: bool, broken: str) -> None:
    """Raise ValueError with `broken`, the broken rule, unless the rule holds."""
    if not holds:
        raise ValueError(f"What-if: {broken}. Change it.")


@dataclass(frozen=True)
class NewApp:
    """A new application that behaves like an existing one."""

    name: str
    like: str  # the existing application
    share: float  # its requests over those of the whole trace without it


@dataclass(frozen=True)
class Outage:
    """A period in which a region takes no requests: they arrive in the other regions by their shares."""

    region: str
    start: datetime
    minutes: int


@dataclass(frozen=True)
class TraceChanges:
    """Changes to a fitted trace; without changes it behaves like the original."""

    growth_per_week: float = 0.0  # a step from week to week, as in the office traffic
    interactive_to_niw: float | None = None  # ratio of requests, such as 9, 3 or 1; their sum is unchanged
    new_apps: tuple[NewApp, ...] = ()
    bursts: tuple[BurstConfig, ...] = ()
    outages: tuple[Outage, ...] = ()
    holidays: tuple[date, ...] = ()  # days that behave like a Sunday

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
    """Read a what-if file; ConfigError with the key for one that is unknown, missing or mistyped."""
    changes: TraceChanges = build_dataclass(TraceChanges, read_toml(path), path.name)
    return changes
