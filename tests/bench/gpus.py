"""Which GPUs to rent: profiles composed from kernels, the programmes, the command."""

import measurements
import numpy as np
from measure import Figures, Skipped, Target

from models.world.catalogue import load_catalogue

CATALOGUE = load_catalogue()
COMPOSED = "profiles composed from measured kernels: TPOT of measured runs, median error"
HOPPER = ("h100-80gb", "h200-141gb")

TARGETS = {
    "gpus_composed_tpot_error": Target("", f"{COMPOSED}, H100 and H200", at_most=0.08),
    "gpus_composed_tpot_error_all": Target("", f"{COMPOSED}, B200 too"),
    "gpus_composed_tpot_error_p90": Target("", "the same, 90th percentile"),
    "gpus_composed_tpot_error_16_bits": Target("", f"{COMPOSED}, 16 bits"),
    "gpus_composed_tpot_error_8_bits": Target("", f"{COMPOSED}, 8 bits"),
}


def composed() -> Figures:
    """How near a profile composed from kernels comes to whole runs that nothing was fitted to."""
    if not measurements.KERNELS.exists():
        raise Skipped(f"no measured runs in {measurements.PROFILES}")
    runs = measurements.tpot_runs(CATALOGUE)
    error = np.abs(runs["foretold_s"] / runs["tpot_s"] - 1)
    return {
        "gpus_composed_tpot_error": float(error[runs["gpu"].isin(HOPPER)].median()),
        "gpus_composed_tpot_error_all": float(error.median()),
        "gpus_composed_tpot_error_p90": float(error.quantile(0.9)),
        "gpus_composed_tpot_error_16_bits": float(error[runs["weight_bits"] == 16].median()),
        "gpus_composed_tpot_error_8_bits": float(error[runs["weight_bits"] == 8].median()),
    }


FUNCTIONS = (composed,)
