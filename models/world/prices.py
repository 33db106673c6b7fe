"""Price lists of cloud providers, one per run: data/catalogue/prices.toml, or a file of the same form."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import NamedTuple

from fleetcast.models.world.catalogue import CATALOGUE_DIR, Catalogue
from fleetcast.models.world.catalogue_entries import Positive
from fleetcast.models.world.toml_dataclasses import ConfigError, build_dataclass, read_toml, require_known

PRICES_FILE = CATALOGUE_DIR / "prices.toml"


@dataclass(frozen=True)
class PriceList:
    """USD per GPU-hour of one provider by GPU type: on demand, and where known as spot and reserved."""

    on_demand: dict[str, Positive]
    date: date
    source: str
    spot: dict[str, Positive] = field(default_factory=dict)
    reserved: dict[str, Positive] = field(default_factory=dict)


def load_price_lists(catalogue: Catalogue, file: Path = PRICES_FILE) -> dict[str, PriceList]:
    """Return the price lists of a file by provider; ConfigError for a missing file or an unknown GPU type."""
    if not file.is_file():
        raise ConfigError(f"There is no file {file}. Name one with a table per provider, as in prices.toml.")
    lists = {
        name: build_dataclass(PriceList, table, f"{file.name} [{name}]")
        for name, table in read_toml(file).items()
    }
    if not lists:
        raise ConfigError(f"{file} has no table. Write one per provider, as in data/catalogue/prices.toml.")
    for name, prices in lists.items():
        for kind in ("on_demand", "spot", "reserved"):
            for gpu in getattr(prices, kind):
                require_known(gpu, catalogue.gpus, "gpu", f"{file.name} [{name}] {kind}")
    return lists


def choose_provider(
    lists: Mapping[str, PriceList], provider: str | None, needed: Iterable[str], where: str
) -> str:
    """Return the provider, or without one the first that has a price of all `needed` GPU types.

    ConfigError for an unknown provider, or where a needed type has no price.
    """
    if provider is not None:
        require_known(provider, lists, "provider", "--provider")
    names = list(lists) if provider is None else [provider]
    types = list(dict.fromkeys(needed))
    for name in names:
        if all(gpu in lists[name].on_demand for gpu in types):
            return name
    seller = "any one provider" if provider is None else provider
    lacking = types if provider is None else [gpu for gpu in types if gpu not in lists[provider].on_demand]
    raise ConfigError(
        f"{where} has no price of {', '.join(lacking)} from {seller}. Name another --provider, or give your "
        "own prices: --prices FILE."
    )


class ProviderPrices(NamedTuple):
    """The catalogue at the prices of one provider."""

    catalogue: Catalogue
    provider: str
    prices: PriceList

    def note(self, gpus: Iterable[str]) -> str:
        """Return the provider and its prices of these GPU types, in words."""
        rates = ", ".join(
            f"{self.prices.on_demand[gpu]:,.2f} per {gpu} hour"
            for gpu in dict.fromkeys(gpus)
            if gpu in self.prices.on_demand
        )
        return f"prices of {self.provider}, {self.prices.date}: {rates} USD"


def price_by_provider(
    catalogue: Catalogue, needed: Iterable[str], provider: str | None = None, file: Path | None = None
) -> ProviderPrices:
    """Return the catalogue at the prices of the given provider, or of the first with all `needed` types.

    `file`: price lists instead of those of the catalogue. Errors as of load_price_lists and choose_provider.
    """
    lists = load_price_lists(catalogue, file or PRICES_FILE)
    chosen = choose_provider(lists, provider, needed, str(file or PRICES_FILE.name))
    return ProviderPrices(price_catalogue(catalogue, lists[chosen]), chosen, lists[chosen])


def price_catalogue(catalogue: Catalogue, prices: PriceList) -> Catalogue:
    """Return the catalogue at a provider's prices on demand; a type that it does not offer has none (0)."""
    gpus = {
        name: replace(gpu, usd_per_hour=prices.on_demand.get(name, 0.0))
        for name, gpu in catalogue.gpus.items()
    }
    return replace(catalogue, gpus=gpus)
