"""Cascades: which llms answer a request for an llm, one after the other, and which cannot be."""

from collections.abc import Mapping
from itertools import pairwise

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
    goes_on = dict[str, tuple[float, float]]()
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
        for (llm, _), share in zip(pairwise(cascade.llms), cascade.go_on_shares, strict=True):
            if goes_on.setdefault(llm, (share, cascade.judge_s)) != (share, cascade.judge_s):
                raise ConfigError(
                    f"{where}: answers of {llm} are judged in another cascade too, with another share or "
                    "judge_s. Give both the same."
                )
