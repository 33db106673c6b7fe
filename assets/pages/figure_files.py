"""Figures as files: drawn in the house style, saved under data/figures/TRACE/DAY, scaled for metadata."""

import io
from collections.abc import Callable, Mapping
from datetime import date
from functools import partial

from fleetcast.assets.lake.settings import Progress, RunSettings
from fleetcast.assets.lake.store import LakePath
from fleetcast.assets.pages.figure_style import MUTED, STYLE, Figure

DrawFigure = Callable[[RunSettings, date], Figure]


def draw_day_figures(
    settings: RunSettings, day: date, drawings: Mapping[str, DrawFigure], progress: Progress | None = None
) -> dict[str, LakePath]:
    """Draw figures of a day, save them as PNG and return the files by name."""
    paths = {}
    for name, draw in (progress or Progress()).each(f"draw {day}", drawings.items()):
        paths[name] = save_day_figure(settings, day, name, partial(draw, settings, day))
    return paths


def save_day_figure(settings: RunSettings, day: date, name: str, draw: Callable[[], Figure]) -> LakePath:
    """Draw one figure in the house style and save it as PNG under data/figures/TRACE/DAY."""
    path = settings.figures(day) / f"{name}.png"
    draw_and_save_figure(path, f"{settings.trace}, {day}", draw)
    return path


def draw_and_save_figure(path: LakePath, title: str, draw: Callable[[], Figure], **metadata: str) -> None:
    """Draw one figure in the house style and save it as PNG, with `title` in its corner."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    with plt.rc_context(STYLE):
        figure = draw()
        if figure.get_suptitle():  # a headline of all panels
            figure.text(0.995, 0.99, title, ha="right", va="top", fontsize=10, color=MUTED)
        else:
            figure.suptitle(title, x=0.995, ha="right", fontsize=10, color=MUTED)
        save_figure(figure, path, **metadata)


def save_figure(figure: Figure, path: LakePath, **metadata: str) -> None:
    """Save a figure as PNG, on a disk or in a bucket, and close it; its texts become the PNG's description.

    It prints the canvas itself: `savefig` would draw a figure with constrained layout twice.
    """
    import matplotlib.pyplot as plt
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    titles = [axes.get_title(place) for axes in figure.axes for place in ("left", "center", "right")]
    texts = [*titles, *(text.get_text() for axes in figure.axes for text in axes.texts)]
    packed = io.BytesIO()
    description = "\n".join(filter(None, texts))
    FigureCanvasAgg(figure).print_png(packed, metadata={"Description": description, **metadata})
    plt.close(figure)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(packed.getvalue())


def figure_thumbnail(path: LakePath, width_pixels: int = 900) -> bytes:
    """Return a PNG scaled down to `width_pixels`, small enough for the metadata of an event."""
    from PIL import Image

    image = Image.open(io.BytesIO(path.read_bytes())).convert("RGB")
    image.thumbnail((width_pixels, width_pixels))
    packed = io.BytesIO()
    # The default method merges colours that cover little of the picture, such as those of thin lines.
    image.quantize(256, Image.Quantize.FASTOCTREE).save(packed, format="png", optimize=True)
    return packed.getvalue()
