"""fleetcast: trace analytics and forecasting for fleets that serve large language models.

From Python: `from fleetcast import Fleet, Trace, replay` (models/simulation.py). Everything else: the command
`fleetcast`.
"""

from typing import Any

__all__ = ["Fleet", "Observation", "Trace", "replay"]


def __getattr__(name: str) -> Any:
    """Loaded when it is used: the command line starts without."""
    if name not in __all__:
        raise AttributeError(f"module 'fleetcast' has no attribute {name!r}")
    from fleetcast.models import simulation

    return getattr(simulation, name)
