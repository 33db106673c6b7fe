"""Made traffic: how far the statistics of a trace and of another one made like it lie apart."""

import gzip
import json
import tarfile
import tempfile
from collections.abc import Sequence
from datetime import date, timedelta
from pathlib import Path

import numpy as np
import pandas as pd
from measure import SHARED, Figures, Skipped, Target, peak_gb

from fleetcast.assets.demand.fit_trace_clients import fit_clients
from fleetcast.assets.demand.generate_trace import GenerationRequest, generate_trace
from fleetcast.assets.lake.settings import Progress
from fleetcast.assets.lake.warehouse import Lake
from fleetcast.assets.traces.ingest import ingest_file
from fleetcast.models.traffic.clients import client_day
from fleetcast.models.traffic.sessions import fit_sessions, session_roots
from fleetcast.models.traffic.trace_changes import TraceChanges
from fleetcast.models.traffic.trace_columns import TraceNames
from fleetcast.models.world.catalogue import load_catalogue

SEEDS = 8
LARGE_REQUESTS, LARGE_DAYS = 2_400_000, 14  # of the trace whose memory is measured
WITHIN = 0.15
LARGE_SHARE = 0.01  # of the requests, from which on a client is a large one
SERVEGEN = ("servegen_m-small.traces.tar.gz", "servegen_m-small.datasets.tar.xz")
RATE_SCALE = 3e-4  # 426,000 requests of ServeGen's 1.4 billion
OTHERS = {
    "azure_llm": ("AzureLLMInferenceTrace_code.csv.gz", "AzureLLMInferenceTrace_conv.csv.gz"),
    "mooncake": ("mooncake_synthetic_trace.jsonl.gz",),
}
HOUR_US, MINUTE_US, SECOND_US = 3_600_000_000, 60_000_000, 1_000_000
TARGETS = {
    "generate_statistics_within_15": Target(
        "", "share of the statistics of all shared traces, mean of 8 seeds, within 15 %; in sample"
    ),
    "generate_statistics_within_15_held_out": Target(
        "", "the same of ServeGen's second week, made like the first", at_least=0.9
    ),
    "generate_statistics_within_15_halves": Target(
        "", "the same of that week itself, the first one in the place of the made trace"
    ),
}
SESSIONS = {
    "going_on": "requests that go on from an earlier one, a share",
    "turns": "turns of sessions that have several",
    "pause": "seconds between turns, median",
    "growth": "tokens that a turn adds, mean",
    "grown": "the same, nine tenths",
}
OF_SESSIONS = {"all": "Mooncake", "first": "its first half", "second": "its second half"}
TARGETS |= {
    f"generate_sessions_{statistic}_{part}{made}": Target("", f"{of}{', made' if made else ''}: {what}")
    for statistic, what in SESSIONS.items()
    for part, of in OF_SESSIONS.items()
    for made in ("", "_made")
}
MOONCAKE_SCALE = 0.3  # a made day of a hundred thousand requests

TARGETS |= {
    "generate_peak_gb": Target(
        "GB",
        "2.4 million requests of 14 days like ServeGen m-small, with landing and fitting it",
        at_most=2.0,
    ),
}

Statistics = dict[str, float]


def statistics() -> Figures:
    """Fit the shared traces, draw them again, and hold the statistics of both side by side."""
    if not SHARED.exists():
        raise Skipped("the shared traces are not next to this checkout (../shared/data)")
    made, original = [], []
    with tempfile.TemporaryDirectory() as folder:
        lake = Lake(Path(folder) / "lake")
        land(lake, Path(folder))
        for trace in ("servegen", *OTHERS):
            before, after = side_by_side(lake, trace, trace, lake.days("requests", trace))
            made.append(after)
            original.append(before)
        days = lake.days("requests", "servegen")
        for day in days[:7]:
            rows = lake.read("requests", trace="servegen", day=day).drop_columns(["trace", "day"])
            lake.write("requests", rows, trace="first_week", day=day)
        second, held_out = side_by_side(lake, "servegen", "first_week", days[7:])
        large = large_apps(read(lake, "servegen", days[7:]))
        first = trace_statistics(read(lake, "first_week", days[:7]), large)
    return {
        "generate_statistics_within_15": within(original, made),
        "generate_statistics_within_15_held_out": within([second], [held_out]),
        "generate_statistics_within_15_halves": within([second], [first]),
    }


def land(lake: Lake, folder: Path) -> None:
    """Bring the shared traces into the lake."""
    land_servegen(lake, folder, RATE_SCALE)
    catalogue = load_catalogue().of_era("2023", "here")
    for name in (name for names in OTHERS.values() for name in names):
        ingest_file(SHARED / "traces" / name, lake, catalogue)


def land_servegen(lake: Lake, folder: Path, rate_scale: float, mapping: str = "") -> None:
    """Bring ServeGen m-small into the lake, from 2024-01-01 on."""
    archive = folder / "servegen.tar.gz"
    with tarfile.open(archive, "w:gz", compresslevel=1) as packed:
        for name in SERVEGEN:
            with tarfile.open(SHARED / "demand" / name) as members:
                for member in members:
                    packed.addfile(member, members.extractfile(member))
    archive.with_name("servegen.toml").write_text(
        f'trace = "servegen"\nstart = 2024-01-01T00:00:00Z\nrate_scale = {rate_scale}\n{mapping}'
    )
    ingest_file(archive, lake, load_catalogue().of_era("2023", "here"))


def side_by_side(lake: Lake, trace: str, like: str, days: Sequence[date]) -> tuple[Statistics, Statistics]:
    """Statistics of some days of a trace, and their mean over traces of these days made like another one."""
    names = TraceNames.of(load_catalogue().of_era("2023", "here"))
    original = read(lake, trace, days)
    large = large_apps(original)
    traffic, apps = fit_clients(lake, like, names, Progress())
    made = []
    for seed in range(SEEDS):
        drawn = []
        for number in range((days[-1] - days[0]).days + 1):
            day = days[0] + timedelta(days=number)
            columns = client_day(traffic, TraceChanges(), day, days[0], seed, names)
            midnight_us = np.datetime64(day, "us").astype(np.int64)
            one = {"at": columns.arrived_us + midnight_us, "app": np.array(apps)[columns.app]}
            drawn.append(
                pd.DataFrame({**one, "input": columns.input_tokens, "output": columns.output_tokens})
            )
        whole = pd.concat(drawn)
        made.append(
            trace_statistics(whole[whole["at"].between(original["at"].min(), original["at"].max())], large)
        )
    before, after = trace_statistics(original, large), pd.DataFrame(made).mean().to_dict()
    for name, value in before.items():
        print(f"  {trace} like {like}: {name} {value:.3g} -> {after[name]:.3g}")
    return before, after


def read(lake: Lake, trace: str, days: Sequence[date]) -> pd.DataFrame:
    """Instant, app and tokens of the requests of some days."""
    return lake.sql(
        "select epoch_us(arrived_at) as at, app, input_tokens as input, output_tokens as output "
        "from requests where trace = $trace and day between $first and $last",
        trace=trace,
        first=days[0],
        last=days[-1],
    ).to_pandas()


def large_apps(requests: pd.DataFrame) -> list[str]:
    """The apps that send a hundredth of the requests or more."""
    share = requests["app"].value_counts(normalize=True)
    return sorted(share.index[share >= LARGE_SHARE])


def trace_statistics(requests: pd.DataFrame, large: list[str]) -> Statistics:
    """The statistics of a trace; those by the hour only of a day or more."""
    at = requests["at"].to_numpy()
    hour = at // HOUR_US - at.min() // HOUR_US
    found: Statistics = {}
    if hour.max() >= 24:
        load = np.bincount(hour).astype(float)
        by_app = requests.assign(hour=hour).pivot_table(
            index="app", columns="hour", values="at", aggfunc="size", fill_value=0
        )
        clients = by_app.reindex(index=large, columns=range(load.size), fill_value=0).to_numpy(float)
        found["hours_asleep"] = float((clients == 0).mean())
        found["hourly_rate_cv"] = float(np.mean(clients.std(axis=1) / np.maximum(clients.mean(axis=1), 1e-9)))
        for kind in ("input", "output"):
            mean = requests.groupby(hour)[kind].mean()
            found[f"mean_{kind}_cv"] = float(mean.std(ddof=0) / mean.mean())
        for name, lag in (("day", 24), ("week", 168)):
            if load.size >= 2 * lag - 2:
                found[f"acf_{name}"] = float(np.corrcoef(load[:-lag], load[lag:])[0, 1])
        found["peak_hour"] = float(load.max() / load.mean())
        found["dispersion_1h"] = float(load.var() / load.mean())
    minute = at // MINUTE_US - at.min() // MINUTE_US
    # The record begins and ends within a minute.
    minutes, input_tokens = np.bincount(minute)[1:-1], np.bincount(minute, requests["input"])[1:-1]
    busy = minutes > 0
    found["load_to_input"] = float(np.corrcoef(minutes[busy], input_tokens[busy] / minutes[busy])[0, 1])
    found["dispersion_1min"] = float(minutes.var() / minutes.mean())
    seconds = np.bincount(at // SECOND_US - at.min() // SECOND_US)
    found["peak_second"] = float(seconds.max() / seconds.mean())
    found["dispersion_1s"] = float(seconds.var() / seconds.mean())
    return found


def within(original: Sequence[Statistics], made: Sequence[Statistics]) -> float:
    """Share of the statistics that lie within WITHIN of those of the original."""
    near = [
        abs(after[name] / value - 1) <= WITHIN
        for before, after in zip(original, made, strict=True)
        for name, value in before.items()
    ]
    return float(np.mean(near))


def sessions() -> Figures:
    """The sessions of Mooncake, one llm for all, and of a day made like it; and of each half."""
    if not SHARED.exists():
        raise Skipped("the shared traces are not next to this checkout (../shared/data)")
    figures, catalogue = Figures(), load_catalogue().of_era("2023", "here")
    with tempfile.TemporaryDirectory() as folder:
        lake = Lake(Path(folder) / "lake")
        with gzip.open(SHARED / "traces" / OTHERS["mooncake"][0], "rt") as packed:
            lines = packed.read().splitlines()
        at_ms = np.array([json.loads(line)["timestamp"] for line in lines])
        is_first = at_ms < at_ms.max() / 2
        for part, chosen in (("all", is_first | True), ("first", is_first), ("second", ~is_first)):
            file = Path(folder) / f"{part}.jsonl"
            kept = [line for line, take in zip(lines, chosen, strict=True) if take]
            file.write_text("\n".join(kept), encoding="utf-8")
            mapping = f'trace = "{part}"\nllm = "llama2-70b"\nregion = "east"\ntier = "iw_fast"\n'
            file.with_suffix(".toml").write_text(mapping, encoding="utf-8")
            ingest_file(file, lake, catalogue)
            order = GenerationRequest(part, f"{part}_made", None, 1, MOONCAKE_SCALE, 7, TraceChanges())
            generate_trace(lake, catalogue, order, Progress())
            for trace in (part, f"{part}_made"):
                found = session_statistics(lake, trace)
                print(f"  {trace}:", {name: round(value, 3) for name, value in found.items()})
                figures |= {f"generate_sessions_{name}_{trace}": value for name, value in found.items()}
    return figures


def session_statistics(lake: Lake, trace: str) -> Statistics:
    """The statistics of SESSIONS, derived from the block hashes alone."""
    rows = lake.sql(
        "select epoch_us(arrived_at) as at, input_tokens as tokens, prefix_hashes as hashes from requests "
        "where trace = $trace order by arrived_at, request_id",
        trace=trace,
    )
    hashes, at, tokens = rows["hashes"].combine_chunks(), rows["at"].to_numpy(), rows["tokens"].to_numpy()
    zeros = np.full(at.size, -1)
    blocks = hashes.values.to_numpy().astype(np.uint64)
    found = fit_sessions(zeros + 1, zeros, at, hashes.offsets.to_numpy().astype(np.int64), blocks)
    before = np.flatnonzero(found.following >= 0)
    turn = found.following[before]
    previous = zeros.copy()
    previous[turn] = before
    turns = np.bincount(session_roots(previous))
    grown = tokens[turn].astype(float) - tokens[before]
    return {
        "going_on": turn.size / at.size,
        "turns": float(turns[turns > 1].mean()),
        "pause": float(np.median(at[turn] - at[before])) / SECOND_US,
        "growth": float(grown.mean()),
        "grown": float(np.quantile(grown, 0.9)),
    }


def memory() -> Figures:
    """Make LARGE_REQUESTS requests like ServeGen m-small."""
    if not SHARED.exists():
        raise Skipped("the shared traces are not next to this checkout (../shared/data)")
    with tempfile.TemporaryDirectory() as folder:
        lake = Lake(Path(folder) / "lake")
        land_servegen(lake, Path(folder), RATE_SCALE)
        scale = LARGE_REQUESTS / lake.count("requests", trace="servegen")
        order = GenerationRequest("servegen", "large", None, LARGE_DAYS, scale, 7, TraceChanges())
        made = generate_trace(lake, load_catalogue().of_era("2023", "here"), order, Progress())
        print(f"  {made:,} requests")
    return {"generate_peak_gb": peak_gb()}


FUNCTIONS = (statistics, sessions, memory)
SMOKE = {
    "sessions": {"MOONCAKE_SCALE": 0.01},
    "memory": {"LARGE_REQUESTS": 10_000, "LARGE_DAYS": 1, "RATE_SCALE": 1e-5},
}
