"""A run, as data/config/*.toml says it: the trace, the fleet, how it is forecast, planned and replayed."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from pathlib import Path

from models.calendar import Calendar
from models.catalogue import ROOT, TIERS, Catalogue
from models.forecast import ENSEMBLES, METHODS
from models.policies import POLICIES
from models.reading import ConfigError, build, read_config, read_toml, require_known
from models.traffic import OfficeTraffic, TiledTraffic

CONFIG_DIR = ROOT / "data" / "config"
CALENDAR_DIR = ROOT / "data" / "calendar"
QUANTILES = (0.5, 0.9, 0.95)  # of the forecasts


@dataclass(frozen=True)
class TraceConfig:
    """Which trace to run on: made by [trace.office] or [trace.tiled], else landed under `name`."""

    name: str
    first_day: date
    days: int  # the last one is replayed, the ones before are history
    seed: int
    office: OfficeTraffic | None = None
    tiled: TiledTraffic | None = None

    @property
    def replay_day(self) -> date:
        """The last day of the trace: the one that is replayed when no date is given."""
        return self.first_day + timedelta(days=self.days - 1)


@dataclass(frozen=True)
class Deployment:
    """How one instance of an llm is built: `tensor_parallel` GPUs of one type."""

    gpu: str
    tensor_parallel: int


@dataclass(frozen=True)
class FleetConfig:
    """The captive fleet: what an instance of each llm is, and how many there may be per endpoint."""

    deployments: Mapping[str, Deployment]
    instances_at_start: int
    min_instances: int
    max_instances: int
    kv_memory_share: float  # of a GPU's memory that weights and KV cache may fill
    kv_block_tokens: int
    max_batch: int  # requests in a batch
    batching: str  # whole prompts first, chunked, or orca
    max_prefill_tokens: int  # prompt tokens in one step: of a whole batch, or the budget when chunked


@dataclass(frozen=True)
class ForecastConfig:
    """What is forecast, how often, and by which methods."""

    method: str  # plans by quantiles read it
    paper_method: str  # the paper's policies plan from its means
    methods: tuple[str, ...]  # all that are made, both of these among them
    bucket_minutes: int
    history_days: int
    niw_buffer_share: float  # of the last hour's niw load, added to the forecast (SageServe 6.3)
    calendar: str | None = None  # a file of data/calendar: time zone, holidays, known events


@dataclass(frozen=True)
class PlanConfig:
    """The hourly programmes: SageServe's (models/plan/paper.py) and the corrected one (corrected.py)."""

    solver: str
    epsilon: float  # share of its own peak that a region must be able to serve
    capacity_share: float  # of an instance's measured capacity that the paper's plan counts on
    corrected_capacity_share: float  # the same of the corrected plan
    quantile: float  # of the hour's maximum that the corrected plan covers: 0.5, 0.9 or 0.95
    spot_earning_share: float  # of its price that a donated instance earns
    hysteresis_share: float  # of an hour's price that giving an instance up must save
    export_share: float  # of the cheapest capacity that serving a token in another region costs on top
    gap_share: float
    time_limit_s: float


@dataclass(frozen=True)
class ReplayConfig:
    """The replay's thresholds and clocks (SageServe 4, 6.1, 6.2, 6.4, 7.1)."""

    policies: tuple[str, ...]
    routing: str  # to an instance: shortest_queue, round_robin or least_kv
    order: str  # of an instance's queue: fcfs, edf, pf or dpa
    tau_p_s: float  # DPA: urgent when less than this is left to the first token's deadline
    tau_n_s: float  # DPA: severely expired when the deadline is longer past than this
    route_utilisation_share: float
    scale_out_share: float
    scale_in_share: float
    cooldown_s: float
    monitor_s: float
    niw_pull_one_share: float
    niw_pull_two_share: float
    niw_priority_age_s: float
    boot_spot_s: float  # median; draws are between half of it and boot_spot_max_s
    boot_spot_max_s: float
    boot_local_s: float
    boot_remote_s: float
    failures_per_instance_day: float
    pressure_share: float  # Chiron: of the instances that may be busy with interactive requests
    surge_ratio: float  # LT-UA: observed over forecast load from which it may pass its target
    slump_ratio: float
    correction_minutes: int  # LT-UA: the last minutes of the hour in which it may


@dataclass(frozen=True)
class Config:
    """One file of data/config: a trace, a fleet, and how to forecast, plan and replay."""

    name: str  # of the file
    trace: TraceConfig
    fleet: FleetConfig
    forecast: ForecastConfig
    plan: PlanConfig
    replay: ReplayConfig
    calendar: Calendar = field(default_factory=Calendar)  # the file that [forecast] calendar names


def load_config(name: str, catalogue: Catalogue, folder: Path = CONFIG_DIR) -> Config:
    """Read a run configuration by name ("office") or by path ("my/run.toml")."""
    path = Path(name) if name.endswith(".toml") else folder / f"{name}.toml"
    config: Config = build(Config, {"name": path.name, **read_config(path, folder)}, path.name)
    check_ranges(config, catalogue, path.name)
    if config.forecast.calendar is not None:
        config = replace(config, calendar=load_calendar(config.forecast.calendar))
    for method in config.forecast.methods:
        require_known(method, (*METHODS, *ENSEMBLES), "forecast method", f"{path.name} [forecast] methods")
    for policy in config.replay.policies:
        require_known(policy, POLICIES, "policy", f"{path.name} [replay] policies")
    for llm, deployment in config.fleet.deployments.items():
        require_known(llm, catalogue.llms, "llm", f"{path.name} [fleet.deployments]")
        catalogue.profile(llm, deployment.gpu, deployment.tensor_parallel)
    for tier in catalogue.tiers:
        require_known(tier, TIERS, "tier", "tiers.toml")
    return config


def load_calendar(name: str, folder: Path = CALENDAR_DIR) -> Calendar:
    """Read a calendar by name; ConfigError names what is wrong with it."""
    calendar: Calendar = build(Calendar, read_toml(folder / f"{name}.toml"), f"{name}.toml")
    calendar.check(f"{name}.toml")
    return calendar


def check_ranges(config: Config, catalogue: Catalogue, where: str) -> None:
    """Refuse figures that contradict each other before anything is made from them."""
    fleet, plan, start = config.fleet, config.plan, config.fleet.instances_at_start
    rules = (
        (
            0 <= fleet.min_instances <= fleet.max_instances,
            "[fleet] needs 0 <= min_instances <= max_instances",
        ),
        (0 <= start <= fleet.max_instances, "[fleet] needs 0 <= instances_at_start <= max_instances"),
        (0 < fleet.kv_memory_share <= 1, "[fleet] kv_memory_share must be above 0 and at most 1"),
        (fleet.kv_block_tokens >= 1, "[fleet] kv_block_tokens must be at least 1"),
        (fleet.max_batch >= 1, "[fleet] max_batch must be at least 1"),
        (fleet.max_prefill_tokens > fleet.max_batch, "[fleet] max_prefill_tokens must exceed max_batch"),
        (0 < plan.epsilon <= 1, "[plan] epsilon must be above 0 and at most 1"),
        (0 < plan.capacity_share <= 1, "[plan] capacity_share must be above 0 and at most 1"),
        (
            0 < plan.corrected_capacity_share <= 1,
            "[plan] corrected_capacity_share must be above 0 and at most 1",
        ),
        (plan.quantile in QUANTILES, f"[plan] quantile must be one of {', '.join(map(str, QUANTILES))}"),
        (0 <= plan.spot_earning_share <= 1, "[plan] spot_earning_share must be 0 to 1"),
        (0 <= plan.hysteresis_share <= 1, "[plan] hysteresis_share must be 0 to 1"),
        (0 <= plan.export_share <= 1, "[plan] export_share must be 0 to 1"),
        (
            {config.forecast.method, config.forecast.paper_method} <= set(config.forecast.methods),
            "[forecast] methods must have method and paper_method among them",
        ),
        (
            config.forecast.bucket_minutes >= 1 and 60 % config.forecast.bucket_minutes == 0,
            "[forecast] bucket_minutes must divide an hour",
        ),
        (config.forecast.history_days >= 1, "[forecast] history_days must be at least 1"),
        (
            0 <= config.replay.scale_in_share < config.replay.scale_out_share <= 1,
            "[replay] needs 0 <= scale_in_share < scale_out_share <= 1",
        ),
        (0 < config.replay.pressure_share <= 1, "[replay] pressure_share must be above 0 and at most 1"),
        (config.trace.days >= 2, "[trace] days must be at least 2: history and the day that is replayed"),
    )
    for holds, rule in rules:
        if not holds:
            raise ConfigError(f"{where}: {rule}. Change it.")
    for name, region in catalogue.regions.items():
        for gpu in catalogue.gpus:
            sizes = (d.tensor_parallel for d in fleet.deployments.values() if d.gpu == gpu)
            held, cap = start * sum(sizes), region.cap_gpus.get(gpu, 0)
            if held > cap:
                raise ConfigError(
                    f"{where}: [fleet] instances_at_start = {start} of each llm: {held} {gpu} in {name}, "
                    f"whose cap_gpus is {cap} (regions.toml). Lower the one or raise the other."
                )
