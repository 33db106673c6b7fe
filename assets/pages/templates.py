"""Jinja2 templates, that stand beside the code that fills them: text as files, values escaped."""

from collections.abc import Callable
from pathlib import Path
from typing import Any


def fill_template(path: Path, filters: dict[str, Callable[..., Any]] | None = None, **values: Any) -> str:
    """The text of a template with these values and filters; HTML and SVG escape the values."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    world = Environment(
        loader=FileSystemLoader(path.parent),
        autoescape=path.suffixes[-2] in (".html", ".svg"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    world.filters |= filters or {}
    return world.get_template(path.name).render(**values)
