"""Jobs, schedules and the command line. Import this package first: it sets variables that libraries read."""

import os

# The arrays of a forecast are small. With several BLAS threads a forecast takes four times the CPU time.
for _library in ("OPENBLAS", "OMP", "MKL"):
    os.environ.setdefault(f"{_library}_NUM_THREADS", "1")
