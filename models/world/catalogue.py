"""The catalogue, data/catalogue/*.toml: GPUs, llms, regions, tiers, and measured latency.

An unknown key, a missing key or a value of the wrong type is an error with the file, the key and the remedy.
"""

import functools
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fleetcast.models.world.catalogue_entries import (
    Efficiency,
    EngineCorrection,
    Gpu,
    LatencyProfile,
    Llm,
    LlmChanges,
    Region,
    Tier,
)
from fleetcast.models.world.kernel_times import KernelTimes
from fleetcast.models.world.model_rows import build_llm
from fleetcast.models.world.project_paths import ROOT
from fleetcast.models.world.toml_dataclasses import (
    ConfigError,
    build_dataclass,
    read_toml,
    require_known,
    shorten_text,
)

CATALOGUE_DIR = ROOT / "data" / "catalogue"
TIER_NAME = re.compile(r"[A-Za-z0-9_-]+")
PAST_LATENCY = ("latency_2023",)  # files of profiles that only configs with a latency_era use
FILES = ("gpus", "llms", "regions", "tiers", "latency", *PAST_LATENCY, "roofline", "kernels", "engine")
SUMS = ("interactive", "all")  # names of several tiers together in tables; no tier may have them


@dataclass(frozen=True)
class Catalogue:
    """Content of data/catalogue. Codes in arrays are positions in these mappings, in file order."""

    gpus: Mapping[str, Gpu]
    llms: Mapping[str, Llm]
    regions: Mapping[str, Region]
    tiers: Mapping[str, Tier]
    latency: tuple[LatencyProfile, ...]
    efficiency: Efficiency
    engine: EngineCorrection
    kernels: Mapping[str, KernelTimes] = field(default_factory=dict)  # by GPU type with measured kernels
    past_latency: tuple[LatencyProfile, ...] = ()  # of engines of past years, which only `of_era` uses
    # Profiles of deployments that serve an llm in other bits, by llm and its changes, for `as_served`.
    changed_latency: Mapping[tuple[str, LlmChanges], tuple[LatencyProfile, ...]] = field(default_factory=dict)

    def serving(self, llms: Iterable[str]) -> "Catalogue":
        """Return the catalogue with only these llms and their profiles, in file order."""
        chosen = set(llms)
        return replace(
            self,
            llms={name: llm for name, llm in self.llms.items() if name in chosen},
            latency=tuple(profile for profile in self.latency if profile.llm in chosen),
        )

    def as_served(self, llm: str, changes: LlmChanges) -> "Catalogue":
        """Return the catalogue with an llm as a deployment serves it, and with the profiles of that."""
        if not changes:
            return self
        values: Mapping[str, Any] = dict(changes)
        served = replace(self.llms[llm], **values)
        return replace(
            self, llms={**self.llms, llm: served}, latency=self.changed_latency.get((llm, changes), ())
        )

    def of_era(self, era: str, where: str) -> "Catalogue":
        """Return the catalogue with the profiles of past engines; ConfigError for an era that has none.

        Deployments without a profile of that era keep theirs.
        """
        past = tuple(profile for profile in self.past_latency if profile.era == era)
        if not past:
            known = ", ".join(sorted({repr(profile.era) for profile in self.past_latency}))
            got = shorten_text(repr(era))
            raise ConfigError(f"{where}: got {got}, needed {known}. Drop it for current engines.")
        replaced = {(profile.llm, profile.gpu, profile.tensor_parallel) for profile in past}
        kept = (p for p in self.latency if (p.llm, p.gpu, p.tensor_parallel) not in replaced)
        return replace(self, latency=(*past, *kept))

    def with_tiers(self, tiers: Iterable[str]) -> "Catalogue":
        """Return the catalogue with the interactive ones of these tiers; unchanged if none is interactive."""
        present = set(tiers) & set(self.interactive_tiers)
        kept = {name: tier for name, tier in self.tiers.items() if name in present}
        return replace(self, tiers=kept or self.tiers)

    @property
    def interactive_tiers(self) -> tuple[str, ...]:
        """Names of the tiers whose requests are not deferred, in file order: plans cover these."""
        return tuple(name for name, tier in self.tiers.items() if not tier.is_held)

    def strictest_tier(self, present: Iterable[str]) -> str | None:
        """Return the interactive tier with the shortest TTFT target, then TPOT target; None without any."""
        slos = {
            name: (tier.ttft_slo_s or math.inf, tier.tpot_slo_s or math.inf)
            for name in present
            if not (tier := self.tiers[name]).is_held and (tier.ttft_slo_s or tier.tpot_slo_s)
        }
        return min(slos, key=lambda name: slos[name], default=None)

    @property
    def strictest(self) -> str:
        """The strictest tier of all; a catalogue that was read has one (`check_tiers`)."""
        name = self.strictest_tier(self.tiers)
        assert name is not None
        return name

    def profile(self, llm: str, gpu: str, tensor_parallel: int) -> LatencyProfile:
        """Return the latency profile of a deployment; ConfigError if the catalogue has none."""
        for profile in self.latency:
            if (profile.llm, profile.gpu, profile.tensor_parallel) == (llm, gpu, tensor_parallel):
                return profile
        known = ", ".join(f"{p.tensor_parallel} x {p.gpu}" for p in self.latency if p.llm == llm) or "none"
        raise ConfigError(
            f"latency.toml has no profile of {llm} on {tensor_parallel} x {gpu}; of this llm it has {known}. "
            f"Choose one of these, or estimate it: fleetcast calibrate --llm {llm} --gpu {gpu} "
            f"--tensor-parallel {tensor_parallel} --write."
        )


def load_catalogue(folder: Path = CATALOGUE_DIR) -> Catalogue:
    """Return the catalogue of a folder; unchanged files are not read again."""
    found = [path.stat() for path in (folder / f"{name}.toml" for name in FILES) if path.exists()]
    return _read_catalogue(folder, tuple((file.st_ino, file.st_size, file.st_mtime_ns) for file in found))


@functools.lru_cache(maxsize=4)  # a nightly run loads it some thirty times
def _read_catalogue(folder: Path, _stamps: tuple[tuple[int, int, int], ...]) -> Catalogue:
    """Read the files of the catalogue."""

    def table(name: str, cls: type) -> Any:
        path = folder / f"{name}.toml"
        return {
            key: build_dataclass(cls, value, f"{path.name} [{key}]") for key, value in read_toml(path).items()
        }

    def profiles(name: str) -> Any:
        content = read_toml(folder / f"{name}.toml")
        era = {"era": content["era"]} if "era" in content else {}
        for n, row in enumerate(content.get("profile", [])):
            yield build_dataclass(LatencyProfile, row | era, f"{name}.toml [[profile]] {n + 1}")

    catalogue = Catalogue(
        gpus=table("gpus", Gpu),
        llms={
            name: build_llm(row, f"llms.toml [{name}]", name)
            for name, row in read_toml(folder / "llms.toml").items()
        },
        regions=table("regions", Region),
        tiers=table("tiers", Tier),
        latency=tuple(profiles("latency")),
        past_latency=tuple(row for name in PAST_LATENCY for row in profiles(name)),
        efficiency=build_dataclass(Efficiency, read_toml(folder / "roofline.toml"), "roofline.toml"),
        engine=build_dataclass(EngineCorrection, read_toml(folder / "engine.toml"), "engine.toml"),
        kernels=table("kernels", KernelTimes),
    )
    for gpu in catalogue.kernels:
        require_known(gpu, catalogue.gpus, "gpu", f"kernels.toml [{gpu}]")
    check_regions(catalogue, "regions.toml [{}]")
    check_tiers(catalogue, "tiers.toml")
    return catalogue


def check_regions(catalogue: Catalogue, where: str) -> None:
    """Raise ConfigError for unknown names in a region, and a network delay to itself.

    `where` is a format of the region's name.
    """
    for name, region in catalogue.regions.items():
        for other in (*region.preference, *region.network_s):
            require_known(other, catalogue.regions, "region", where.format(name))
        if own_s := region.network_s.get(name, 0.0):
            raise ConfigError(
                f"{where.format(name)}: network_s to itself is {own_s:g} s, must be 0: it is the delay of "
                "another region. Drop it; [fleet] frontend_s of a config delays every request."
            )
        for gpu in region.cap_gpus:
            require_known(gpu, catalogue.gpus, "gpu", where.format(name))
        for llm in region.weights:
            require_known(llm, catalogue.llms, "llm", where.format(name))


def check_tiers(catalogue: Catalogue, where: str) -> None:
    """Raise ConfigError for a tier with a reserved name, and if no interactive tier has a target."""
    for name in catalogue.tiers:
        if name in SUMS or not TIER_NAME.fullmatch(name):
            raise ConfigError(
                f"{where}: got the tier {name!r}, needed letters, digits, _ or -, and neither of "
                f"{' and '.join(SUMS)}, which name several tiers together. Choose another name."
            )
    if catalogue.strictest_tier(catalogue.tiers) is None:
        raise ConfigError(
            f"{where}: of {', '.join(catalogue.tiers) or 'no tier'} none is interactive with a target. "
            "Give one without is_held a ttft_slo_s or a tpot_slo_s."
        )
