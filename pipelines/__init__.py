"""When things run. Importing this package comes first, so that it can speak to libraries before they load."""

import os

# The arrays of a forecast are small: BLAS threads would only wait for each other, at four times the CPU time.
for _library in ("OPENBLAS", "OMP", "MKL"):
    os.environ.setdefault(f"{_library}_NUM_THREADS", "1")
