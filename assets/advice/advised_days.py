"""Keep the promise of each advised day, and grade it by a replay once the day has landed.

Tables: advised_days has the promise and its plan, trials (experiment ADVICE_EXPERIMENT) what came, the marts
graded_advice and advice_reliability compare them.
"""

from collections import Counter
from datetime import date
from typing import Any

import numpy as np
import pyarrow as pa

from fleetcast.assets.advice import rule_replays, tomorrow_draws
from fleetcast.assets.advice.promise import PromiseSearch, SizedRule
from fleetcast.assets.lake.environment import read_process_config
from fleetcast.assets.lake.errors import LakeError
from fleetcast.assets.lake.schemas import SCHEMAS
from fleetcast.assets.lake.settings import HOURS_OF_DAY, Progress, RunSettings, build_settings
from fleetcast.assets.lake.warehouse import Lake
from fleetcast.assets.studies.experiment import Variant, write_trials
from fleetcast.models.aliases import Floats, Numbers
from fleetcast.models.world.catalogue import load_catalogue
from fleetcast.models.world.config_loading import load_config

ADVICE_EXPERIMENT = "advice"
RELIABILITY_QUERY = "from advice_reliability where trace = $trace order by all"


def keep_promise(settings: RunSettings, search: PromiseSearch, promise: Numbers) -> None:
    """Write the promise of a day and its plan into advised_days; an earlier one of the day is replaced."""
    plan = search.plan
    targets = rule_replays.sized_targets(
        settings, plan, SizedRule(promise["rule"], promise["headroom_share"])
    )
    same = ("required_share", "in_time_low_share", "in_time_high_share")
    tiers = promise["tiers"]
    row = {name: promise[name] for name in same} | {
        "scaling_rule": promise["rule"],
        "plan_headroom_share": promise["headroom_share"],
        "largest_fleet": describe_largest_fleet(settings, targets),
        "survives": promise["survival"]["kind"],
        "is_promised": promise["is_kept"],
        "versions": promise["draws"],
        "promised_share": promise["kept_share"],
        "low_usd": promise["usd_low"],
        "high_usd": promise["usd_high"],
        **{
            f"tier_{name}": [(tier["tier"], tier[name]) for tier in tiers]
            for name in ("low_share", "high_share", "target_share")
        },
        "instances": targets.ravel().tolist(),
        "demand_tokens_per_s": plan.demand.ravel().tolist(),
        "capacity_tokens_per_s": plan.capacity.ravel().tolist(),
        "llms": ", ".join(settings.catalogue.llms),
        "regions": ", ".join(settings.catalogue.regions),
        "config": _config_text(settings),
    }
    table = pa.Table.from_pylist([row], SCHEMAS["advised_days"])
    write_promise(settings.lake, settings.trace, plan.day, table)


def _config_text(settings: RunSettings) -> str:
    """Return the config as TOML; a run on another machine has its text and not its file."""
    file = settings.config.file
    return file.read_text(encoding="utf-8") if file.is_file() else read_process_config()[1]


def describe_largest_fleet(settings: RunSettings, targets: Floats) -> str:
    """Return the most instances of each kind, as `fleetcast try` reads a fleet; targets: (hours, pools)."""
    held = Counter[str]()
    for pool, most in zip(settings.grid.pools, targets.max(axis=0), strict=True):
        held[f"{pool.kind.llm}@{pool.kind.gpus}x{pool.kind.gpu}"] += int(most)
    return ", ".join(f"{count} x {name}" for name, count in held.items())


def write_promise(lake: Lake, trace: str, day: date, table: pa.Table) -> None:
    """Write the promise of a day in place of an earlier one, whose grade is deleted."""
    lake.write("advised_days", table, trace=trace, day=day)
    for path in lake.files("trials", experiment=ADVICE_EXPERIMENT, trace=trace, day=day):
        lake.remove(path)


def copy_promise(page: Lake, lake: Lake, trace: str, day: date) -> None:
    """Copy the promise of a day from a page's lake into the lake that the trace is of."""
    write_promise(
        lake, trace, day, page.read("advised_days", trace=trace, day=day).drop_columns(["trace", "day"])
    )


def grade_advised_day(lake: Lake, trace: str, day: date) -> Numbers | None:
    """Replay the advised fleet on a day that has landed, once; return its row of graded_advice.

    None without advice for the day. LakeError if the day has no requests, if they need llms or regions that
    the advised fleet does not have, or if the catalogue has others than the plan.
    """
    if day not in lake.days("advised_days", trace):
        return None
    query = "from graded_advice where trace = $trace and day = $day"
    if not lake.files("trials", experiment=ADVICE_EXPERIMENT, trace=trace, day=day):
        _replay_advised_day(lake, trace, day)
    return dict(lake.sql(query, trace=trace, day=day).to_pylist()[0])


def _replay_advised_day(lake: Lake, trace: str, day: date) -> None:
    """Write what came of an advised day into trials."""
    [advised] = lake.read("advised_days", trace=trace, day=day).to_pylist()
    catalogue = load_catalogue()
    settings = build_settings(
        lake, catalogue, load_config(f"advice of {day}", catalogue, text=advised["config"])
    )
    _require_same_endpoints(settings, day)
    sized = SizedRule(advised["scaling_rule"], advised["plan_headroom_share"])
    figures = rule_replays.replay_rule(
        settings, _read_plan(settings, day, advised), sized, tomorrow_draws.recorded_draw(settings, day)
    )
    shares = figures.attained | {"all": figures.in_time_share}
    rows = [{"metric": name, "value": getattr(figures, name)} for name in ("usd", "gpu_hours")]
    rows += [{"metric": "attainment_share", "tier": tier, "value": share} for tier, share in shares.items()]
    knobs = {"headroom_share": sized.headroom_share}
    variant = Variant(sized.rule, settings, day, sized.rule, knobs=knobs)
    write_trials(settings, ADVICE_EXPERIMENT, day, variant.rows(rows))


def grade_or_explain(settings: RunSettings, day: date, progress: Progress) -> Numbers | None:
    """Grade the advice that was given for a day, if there is some; report why if that is not possible."""
    try:
        return grade_advised_day(settings.lake, settings.trace, day)
    except (LakeError, ValueError) as error:
        progress.say(f"The advice for {day} is not graded: {error}")
        return None


def grade_landed_days(settings: RunSettings, last: date, progress: Progress) -> None:
    """Grade every advised day up to `last` that has landed."""
    for day in settings.lake.days("advised_days", settings.trace):
        if day <= last and settings.lake.count("requests", trace=settings.trace, day=day):
            grade_or_explain(settings, day, progress)


def reliability_section(lake: Lake, trace: str) -> list[Numbers]:
    """Return the rows of advice_reliability of a trace; none before a day is graded."""
    if not lake.files("advised_days", trace=trace):
        return []
    return [dict(row) for row in lake.sql(RELIABILITY_QUERY, trace=trace).to_pylist()]


def _read_plan(settings: RunSettings, day: date, advised: dict[str, Any]) -> rule_replays.MidnightPlan:
    """Return the plan of an advised day, in the shapes of MidnightPlan; LakeError if the grid has changed."""
    pools, world = len(settings.grid.pools), settings.catalogue
    for name, known in (("llms", list(world.llms)), ("regions", list(world.regions))):
        was = advised[name].split(", ") if advised[name] else known  # older rows have no names
        if was != known:
            raise LakeError(
                f"The plan that was advised for {day} is of the {name} {', '.join(was)}; the catalogue now "
                f"has {', '.join(known)}. It cannot be graded; advise again."
            )
    return rule_replays.MidnightPlan(
        day,
        np.array(advised["instances"]).reshape(HOURS_OF_DAY, pools),
        np.array(advised["demand_tokens_per_s"]).reshape(HOURS_OF_DAY, len(world.llms), len(world.regions)),
        np.array(advised["capacity_tokens_per_s"]).reshape(settings.grid.shape),
        is_sized=True,
    )


def _require_same_endpoints(settings: RunSettings, day: date) -> None:
    """Raise LakeError unless the advised fleet has every llm and region of a day's requests."""
    came = settings.lake.sql(
        "select distinct llm, region from requests where trace = $trace and day = $day",
        trace=settings.trace,
        day=day,
    ).to_pydict()
    if not came["llm"]:
        raise LakeError(f"The day {day} of {settings.trace!r} has no requests. Land it: fleetcast ingest.")
    known = (settings.catalogue.llms, settings.catalogue.regions)
    if other := [*{*came["llm"]}.difference(known[0]), *{*came["region"]}.difference(known[1])]:
        raise LakeError(
            f"The fleet that was advised for {day} has no {', '.join(sorted(other))}, which requests of "
            "that day need. It cannot be graded; advise again."
        )
