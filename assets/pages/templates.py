"""Jinja2 templates: text files in the folder of the code that fills them."""

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Environment


def fill_template(path: Path, filters: dict[str, Callable[..., Any]] | None = None, **values: Any) -> str:
    """Return a template's text with these values and filters; values are escaped in HTML and SVG."""
    environment = _environment(
        path.parent, path.suffixes[-2] in (".html", ".svg"), tuple((filters or {}).items())
    )
    return environment.get_template(path.name).render(**values)


@lru_cache(maxsize=8)  # to compile a template takes 0.1 s, and a page has seven charts
def _environment(
    folder: Path, autoescape: bool, filters: tuple[tuple[str, Callable[..., Any]], ...]
) -> "Environment":
    """Return the environment of a folder; it compiles a template again only when its file has changed."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(folder),
        autoescape=autoescape,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= dict(filters)
    return environment
