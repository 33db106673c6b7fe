"""A small run for tests: the office config with a trickle of requests on three days."""

import re
from datetime import date
from pathlib import Path

from assets.demand import history
from assets.forecasts.forecasts import forecast_day
from assets.lake.settings import Progress, Settings
from assets.plans.plans import plan_day
from models.world.loading import CONFIG_DIR

DAGSTER = """
telemetry: {enabled: false}
nux: {enabled: false}
compute_logs: {module: dagster._core.storage.noop_compute_log_manager, class: NoOpComputeLogManager}
"""  # of a home of its own; the rest is said in the dagster.yaml of the root


def small_config(folder: Path, **changes: str) -> str:
    """Write it to a file and return its path; `changes` replace the first line of that key, in TOML."""
    text = (CONFIG_DIR / "office.toml").read_text(encoding="utf-8")
    values = {
        "name": '"small"',
        "days": "3",
        "requests_per_day": "3000.0",
        "method": '"last_value"',
        "paper_method": '"last_value"',
        "methods": '["last_value"]',
    }
    for key, value in (values | changes).items():
        text, found = re.subn(rf"^{key} = [^#\n]*", f"{key} = {value}", text, count=1, flags=re.M)
        assert found == 1, f"office.toml has no key {key}"
    path = folder / "small.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def make_plans(settings: Settings, day: date) -> None:
    """What a night makes up to its plans: requests and demand of the history and the day, then forecasts."""
    days = [*settings.history(day), day]
    history.make_requests(settings, days, Progress())
    list(history.make_demand(settings, days, Progress()))
    forecast_day(settings, day, Progress())
    plan_day(settings, day, Progress())
