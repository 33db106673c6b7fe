"""Write an hour of one endpoint as a Chrome trace: an instance is a process, a leg a bar in one of its lanes.

Open the file in ui.perfetto.dev or chrome://tracing.
"""

import heapq
import json
from collections.abc import Iterable, Mapping
from datetime import date
from typing import Any

from fleetcast.assets.lake.settings import RunSettings
from fleetcast.assets.lake.store import LakePath
from fleetcast.models.world.model_rows import file_stem
from fleetcast.models.world.toml_dataclasses import require_known

LEG_PHASES = (
    ("handed over", "handed_from_s", "queued_from_s"),
    ("queued", "queued_from_s", "prefill_from_s"),
    ("prefill", "prefill_from_s", "decode_from_s"),
    ("decode", "decode_from_s", "finished_s"),
)
EVENT_FIELDS = ("request_id", "leg", "role", "tier", "app", "input_tokens", "output_tokens")


def write_timeline(
    settings: RunSettings, day: date, policy: str, llm: str, region: str, hour: int
) -> LakePath:
    """Write the hour's timeline to the folder of the day's figures, and return its path.

    ValueError for an unknown name, a policy that was not replayed, or an hour without requests.
    """
    require_known(llm, settings.catalogue.llms, "llm", "--llm")
    require_known(region, settings.catalogue.regions, "region", "--region")
    require_known(policy, settings.config.rules, "policy", "--policy")
    settings.require_day("outcomes", day)
    if not settings.lake.files("outcomes", trace=settings.trace, day=day, policy=policy):
        raise ValueError(
            f"{policy} was not replayed on {day}. Replay it: "
            f"{settings.command(f'replay --policy {policy} --date {day}')}"
        )
    rows = settings.lake.sql(
        "queries/timeline.sql",
        trace=settings.trace, day=day, policy=policy, llm=llm, region=region, hour=hour,
    ).to_pylist()  # fmt: skip
    if not rows:
        raise ValueError(
            f"No request for {llm} was served in {region} in hour {hour} of {day} under {policy}. "
            f"See what is: fleetcast sql \"from scorecard where policy = '{policy}' and day = '{day}'\""
        )
    path = settings.figures(day) / f"timeline_{policy}_{file_stem(llm)}_{region}_{hour:02d}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"traceEvents": list(chrome_trace_events(rows)), "displayTimeUnit": "ms"}))
    return path


def chrome_trace_events(rows: Iterable[Mapping[str, Any]]) -> Iterable[dict[str, Any]]:
    """Yield Chrome trace events of rows sorted by instance and time; times in microseconds of the day.

    A leg takes the lowest free lane of its instance, so bars never overlap. Lanes are positions on the page,
    not positions in the batch.
    """
    instance, lanes, busy = None, 0, list[tuple[float, int]]()
    free = list[int]()
    for row in rows:
        if row["instance"] != instance:
            instance, lanes, busy, free = row["instance"], 0, [], []
            yield {
                "ph": "M",
                "name": "process_name",
                "pid": instance,
                "args": {"name": f"instance {instance}"},
            }
        while busy and busy[0][0] <= row["handed_from_s"]:
            heapq.heappush(free, heapq.heappop(busy)[1])
        if not free:
            heapq.heappush(free, lanes)
            lanes += 1
        lane = heapq.heappop(free)
        heapq.heappush(busy, (row["finished_s"], lane))
        fields = {name: row[name] for name in EVENT_FIELDS}
        for name, begin, end in LEG_PHASES:
            if row[end] > row[begin]:
                yield {
                    "ph": "X", "name": name, "cat": row["tier"], "pid": instance, "tid": lane,
                    "ts": 1e6 * row[begin], "dur": 1e6 * (row[end] - row[begin]), "args": fields,
                }  # fmt: skip
