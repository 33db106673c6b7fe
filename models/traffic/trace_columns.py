"""Names that the codes of a trace refer to, and the columns of its days."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fleetcast.models.world.catalogue import Catalogue


class TraceNames(NamedTuple):
    """Names in catalogue order; codes are positions in them."""

    llms: tuple[str, ...]
    regions: tuple[str, ...]
    tiers: tuple[str, ...]
    interactive: tuple[str, ...]  # the tiers whose requests are not deferred

    @classmethod
    def of(cls, catalogue: Catalogue) -> "TraceNames":
        """Return the names of a catalogue."""
        return cls(
            llms=tuple(catalogue.llms),
            regions=tuple(catalogue.regions),
            tiers=tuple(catalogue.tiers),
            interactive=catalogue.interactive_tiers,
        )


class DayColumns(NamedTuple):
    """The requests of a day in order of arrival, all of shape (requests,)."""

    arrived_us: NDArray[np.int64]  # microseconds since midnight, UTC
    region: NDArray[np.int16]
    llm: NDArray[np.int16]
    tier: NDArray[np.int16]
    app: NDArray[np.int16]
    input_tokens: NDArray[np.int32]
    output_tokens: NDArray[np.int32]
