"""Price lists of cloud providers, one per run: data/catalogue/prices.toml, or a file of one's own.

A file has a table per provider, as prices.toml, or only USD per GPU-hour by type: then it is one list.
"""

from collections.abc import Iterable, Mapping, Sequence
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
    """Return the price lists of a file by provider; ConfigError for a missing file or an unknown GPU type.

    A file without tables is the list of a provider with the name of the file.
    """
    if not file.is_file():
        raise ConfigError(
            f"There is no file {file}. Name one with USD per GPU-hour by type, or as prices.toml."
        )
    tables = read_toml(file)
    if not tables:
        raise ConfigError(f"{file} has no price. Write USD per GPU-hour by type, like h100-80gb = 3.5.")
    if not any(isinstance(table, dict) for table in tables.values()):
        written = date.fromtimestamp(file.stat().st_mtime)
        tables = {file.stem: {"on_demand": tables, "date": written, "source": file.name}}
    lists = {
        name: build_dataclass(PriceList, table, f"{file.name} [{name}]") for name, table in tables.items()
    }
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
    seller = names[0] if len(names) == 1 else "any one provider"
    lacking = [gpu for gpu in types if len(names) > 1 or gpu not in lists[seller].on_demand]
    raise ConfigError(
        f"{where} has no price of {', '.join(lacking)} from {seller}. Leave that type out, name another "
        "--provider, or give your own prices: --prices FILE."
    )


class ProviderPrices(NamedTuple):
    """The catalogue at the prices of one provider."""

    catalogue: Catalogue
    provider: str
    prices: PriceList

    def note(self, gpus: Iterable[str]) -> str:
        """Return the provider and its prices of these GPU types, in words."""
        return f"prices of {self.provider}, {self.prices.date}: {describe_rates(self.catalogue, gpus)}"


def describe_rates(catalogue: Catalogue, gpus: Iterable[str]) -> str:
    """Return the prices of these GPU types, in words; types without one are left out."""
    usd = {gpu: catalogue.gpus[gpu].usd_per_hour for gpu in gpus if gpu in catalogue.gpus}
    rates = [f"{per_hour:,.2f} USD per {gpu} hour" for gpu, per_hour in usd.items() if per_hour > 0]
    return ", ".join(rates)


def price_as_given(
    catalogue: Catalogue, gpus: Sequence[str], provider: str | None, file: Path | None
) -> tuple[Catalogue, str]:
    """Return the catalogue at the prices of a provider or a file, if one is given; and whose prices it has.

    Without either these are the prices of gpus.toml and of the config, whose types have different sellers.
    """
    if provider is None and file is None:
        return catalogue, "prices of gpus.toml, of different sellers (--provider takes those of one)"
    found = price_by_provider(catalogue, gpus, provider, file)
    return found.catalogue, f"prices of {found.provider}, {found.prices.date}"


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
