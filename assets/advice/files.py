"""The page and its numbers as files, on a disk or in a bucket."""

import json
from typing import Any, NamedTuple

from fleetcast.assets.advice.page import page
from fleetcast.assets.lake.store import Place


class Files(NamedTuple):
    """Where a page and its numbers lie."""

    page: Place
    numbers: Place


def read(folder: Place) -> dict[str, Any] | None:
    """The numbers in a folder; None where no page lies there."""
    path = folder / "advice.json"
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else None


def write(numbers: dict[str, Any], folder: Place) -> Files:
    """Write advice.html and advice.json into a folder; ValueError for a number that is none."""
    folder.mkdir(parents=True, exist_ok=True)
    files = Files(folder / "advice.html", folder / "advice.json")
    text = json.dumps(numbers, indent=1, ensure_ascii=False, allow_nan=False)
    files.numbers.write_text(text + "\n", encoding="utf-8")
    files.page.write_text(page(numbers), encoding="utf-8")
    return files
