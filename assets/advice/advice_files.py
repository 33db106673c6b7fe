"""Read and write a page and its numbers as files, on a disk or in a bucket."""

import json
from typing import Any, NamedTuple

from fleetcast.assets.advice.advice_page import render_advice_page
from fleetcast.assets.lake.store import LakePath


class AdviceFiles(NamedTuple):
    """Paths of a page and of its numbers."""

    page: LakePath
    numbers: LakePath


def read_advice(folder: LakePath) -> dict[str, Any] | None:
    """Read the numbers of a page in a folder; None if there is no page."""
    path = folder / "advice.json"
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else None


def write_advice(numbers: dict[str, Any], folder: LakePath) -> AdviceFiles:
    """Write advice.html and advice.json into a folder; ValueError for a nan or an infinity."""
    folder.mkdir(parents=True, exist_ok=True)
    files = AdviceFiles(folder / "advice.html", folder / "advice.json")
    text = json.dumps(numbers, indent=1, ensure_ascii=False, allow_nan=False)
    files.numbers.write_text(text + "\n", encoding="utf-8")
    files.page.write_text(render_advice_page(numbers), encoding="utf-8")
    return files
