"""Paths of the project: ROOT of the shipped files, which are read only, HOME of the files that runs write.

In a checkout both are the checkout. In an installed wheel the shipped files are inside the package; HOME is
FLEETCAST_HOME, or else the current folder.
"""

import os
from pathlib import Path

CODE = Path(__file__).resolve().parents[2]  # has models, assets and pipelines
IS_CHECKOUT = (CODE / "pyproject.toml").is_file()
ROOT = CODE if IS_CHECKOUT else CODE / "shipped"  # has sql and data, as packed by pyproject.toml
HOME = Path(os.environ.get("FLEETCAST_HOME") or (CODE if IS_CHECKOUT else Path.cwd())).resolve()
