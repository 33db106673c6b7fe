"""Where things lie: what comes with the code and is only read, and what runs write.

In a checkout both lie in it. Installed from a wheel, what is read lies inside the package; what is written
goes under FLEETCAST_HOME, or else the folder that one works in.
"""

import os
from pathlib import Path

CODE = Path(__file__).resolve().parents[2]  # of models, assets and pipelines
IS_CHECKOUT = (CODE / "pyproject.toml").is_file()
ROOT = CODE if IS_CHECKOUT else CODE / "shipped"  # of sql and data, as pyproject.toml packs them
HOME = Path(os.environ.get("FLEETCAST_HOME") or (CODE if IS_CHECKOUT else Path.cwd())).resolve()
