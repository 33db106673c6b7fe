"""Cascades: which llms answer a request for an llm, one after the other, and which cannot be."""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.world.catalogue import Catalogue
from models.world.config import Cascade, Config
from models.world.reading import ConfigError, require_known

Floats = NDArray[np.float64]


def reach(catalogue: Catalogue, cascades: Mapping[str, Cascade]) -> Floats:
    """The share of the requests for each llm that comes to each llm, shape (L asked, L that answer).

    Whether an answer will do does not depend on those before it: p_1 = 1, p_(i+1) = p_i times the share of
    answers of the i-th llm that will not (Cascadia 3.2, footnote 1).
    """
    llms = list(catalogue.llms)
    shares = np.eye(len(llms))
    for asked, cascade in cascades.items():
        row = llms.index(asked)
        shares[row] = 0.0
        come = np.cumprod([1.0, *cascade.go_on_shares])
        shares[row, [llms.index(llm) for llm in cascade.llms]] = come
    return shares


def check_cascades(config: Config, catalogue: Catalogue) -> None:
    """Refuse cascades of llms that nobody deploys, in a circle, without a share a step, or at odds."""
    goes_on = dict[str, tuple[Any, ...]]()
    for asked, cascade in config.replay.cascades.items():
        where = f"{config.file.name} [replay.cascades] {asked}"
        for llm in (asked, *cascade.llms):
            require_known(llm, catalogue.llms, "llm", where)
            if llm not in config.fleet.deployments:
                raise ConfigError(f"{where}: {llm} is not in [fleet.deployments]. Add it there or drop it.")
        if len(set(cascade.llms)) < max(len(cascade.llms), 2):
            raise ConfigError(
                f"{where}: llms are {', '.join(cascade.llms) or 'none'}; it needs two or more, each once, "
                "from the first that answers to the last."
            )
        if len(cascade.go_on_shares) != len(cascade.llms) - 1:
            raise ConfigError(
                f"{where}: {len(cascade.go_on_shares)} go_on_shares for {len(cascade.llms)} llms; each llm "
                "but the last needs one. Add or drop some."
            )
        check_gears(cascade, where)
        for leg, llm in enumerate(cascade.llms[:-1]):
            gears = [(gear.at_least, gear.go_on_shares[leg]) for gear in cascade.gears]
            behind = cascade.llms[leg + 1] if cascade.gears_by == "load" else cascade.llms[0]
            said = (cascade.go_on_shares[leg], cascade.judge_s, gears and (gears, behind))
            if goes_on.setdefault(llm, said) != said:
                raise ConfigError(
                    f"{where}: answers of {llm} are judged in another cascade too, with another share, "
                    "judge_s or gears. Give both the same."
                )
    ways = {cascade.gears_by for cascade in config.replay.cascades.values() if cascade.gears}
    if len(ways) > 1:
        raise ConfigError(
            f"{config.file.name} [replay.cascades]: gears_by is {' and '.join(sorted(ways))}. Take one."
        )


def check_gears(cascade: Cascade, where: str) -> None:
    """Refuse gears out of order, or without a share a step."""
    at_least = [gear.at_least for gear in cascade.gears]
    if any(later <= earlier for earlier, later in pairwise(at_least)):
        raise ConfigError(f"{where}: the gears' at_least is {at_least}; it must rise. Sort them.")
    for gear in cascade.gears:
        if len(gear.go_on_shares) != len(cascade.go_on_shares):
            raise ConfigError(
                f"{where}: the gear from {gear.at_least:g} has {len(gear.go_on_shares)} go_on_shares; each "
                "llm but the last needs one. Add or drop some."
            )
