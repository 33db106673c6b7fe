"""Type aliases that every room shares."""

from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Row = Mapping[str, Any]  # of a table, by column
Numbers = dict[str, Any]  # what a page shows, as JSON has it
T = TypeVar("T")
