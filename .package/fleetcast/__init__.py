"""fleetcast: trace analytics and forecasting for fleets that serve large language models.

From Python: `from fleetcast import Fleet, Trace, replay` (models/simulation.py); a policy for the board:
`from fleetcast import OwnPolicy` (models/world/own_policies.py). Everything else: the command `fleetcast`.
"""

from typing import Any

__all__ = ["Fleet", "FleetObservation", "Observation", "OwnPolicy", "Trace", "replay"]


def __getattr__(name: str) -> Any:
    """Loaded when it is used: the command line starts without."""
    if name not in __all__:
        raise AttributeError(f"module 'fleetcast' has no attribute {name!r}")
    from fleetcast.models import simulation
    from fleetcast.models.world import own_policies

    return getattr(own_policies if name in ("OwnPolicy", "FleetObservation") else simulation, name)
