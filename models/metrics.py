"""Formulas of single requests that a replay is judged by; those of a table stand in sql/macros/slo.sql."""

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


def tpot_s(ttft_s: Floats, e2e_s: Floats, output_tokens: npt.NDArray[np.integer]) -> Floats:
    """Time per output token: seconds from the first token to the last, for each one after the first.

    Parameters
    ----------
    ttft_s, e2e_s : shape (n,), seconds to the first and the last token from one same instant; nan: never came

    Returns
    -------
    Shape (n,), nan where the last token never came, or where the first one was the only one.
    """
    later = np.where(output_tokens > 1, output_tokens - 1.0, np.nan)
    return (e2e_s - ttft_s) / later
