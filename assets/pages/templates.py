"""Jinja2 templates: text files in the folder of the code that fills them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any


def fill_template(path: Path, filters: dict[str, Callable[..., Any]] | None = None, **values: Any) -> str:
    """Return a template's text with these values and filters; values are escaped in HTML and SVG."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(path.parent),
        autoescape=path.suffixes[-2] in (".html", ".svg"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= filters or {}
    return environment.get_template(path.name).render(**values)
