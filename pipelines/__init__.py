"""Jobs, schedules and the command line. Import this package first: it sets variables that libraries read."""

import os
import sys
from types import TracebackType

from fleetcast.assets.lake.environment_variables import UI_VARIABLE

# The arrays of a forecast are small. With several BLAS threads a forecast takes four times the CPU time.
for _library in ("OPENBLAS", "OMP", "MKL"):
    os.environ.setdefault(f"{_library}_NUM_THREADS", "1")


def _show_error(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print an error that ends the process, unless it is the signal that ends `fleetcast ui`."""
    if kind.__name__ != "DagsterExecutionInterruptedError":
        sys.__excepthook__(kind, error, trace)


# Dagster's code server, which `fleetcast ui` starts, imports this package and loads definitions for seconds.
# Dagster turns a signal in this time into an exception that it does not catch.
if os.environ.get(UI_VARIABLE):
    sys.excepthook = _show_error
