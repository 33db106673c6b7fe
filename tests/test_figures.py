"""The figures: every label belongs to its point and covers no other; every tier and policy is visible."""

import io
from datetime import UTC, date, datetime
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.text import Text
from PIL import Image

from fleetcast.assets.lake.schemas import SCHEMAS
from fleetcast.assets.lake.settings import RunSettings, load_settings
from fleetcast.assets.pages import figure_files, figure_style
from fleetcast.assets.pages.figure_style import HALF_LINE_HEIGHT, LABEL_GAP, LETTER_WIDTH, POINT_SIZE
from fleetcast.assets.replays import replay_figures
from fleetcast.assets.traces.request_days import write_tiers
from fleetcast.models.world.catalogue import load_catalogue
from fleetcast.models.world.policies import REPLAY_POLICIES

DAY = date(2025, 7, 15)
PLACE = st.tuples(st.integers(0, 80).map(lambda n: n / 100), st.integers(0, 80).map(lambda n: n / 100))


@given(points=st.lists(PLACE, min_size=1, max_size=9, unique=True))
def test_only_points_that_touch_share_a_label_and_no_label_covers_another_or_a_point(points):
    x, y = np.array(points).T
    groups = figure_style.group_overlapping_points(x, y)
    assert sorted(point for group in groups for point in group) == list(range(len(points)))
    for group in groups:
        assert np.ptp(x[group]) <= 2 * POINT_SIZE[0]
        assert np.ptp(y[group]) <= 2 * POINT_SIZE[1]
    ends = np.array([(x[group].max(), y[group].mean()) for group in groups])
    letters = [7 * len(group) for group in groups]
    boxes = [
        (left, left + LETTER_WIDTH * count, height)
        for (left, height), count in zip(
            figure_style.label_positions(ends[:, 0], ends[:, 1], letters), letters, strict=True
        )
    ]
    for n, (left, right, height) in enumerate(boxes):
        for begin, end, other in boxes[:n]:
            assert right <= begin or end <= left or abs(height - other) >= 2 * HALF_LINE_HEIGHT - 1e-9
        for m, (at, middle) in enumerate(ends):
            is_apart = right <= at or at <= left
            assert m == n or is_apart or abs(height - middle) >= HALF_LINE_HEIGHT + POINT_SIZE[1] - 1e-9


def test_no_label_lies_on_an_axis():
    """The label of reactive is below zero: other labels are right of it and above."""
    points = {"hpa": (15.9, 0.1766), "compact": (17.1, 0.0049), "corrected": (21.6, 0.0291)}
    points |= {"day_ahead": (21.6, 0.0265), "reactive": (29.5, 0.0098), "siloed": (35.3, 0.0051)}
    points |= {"chiron": (48.4, 0.024), "clairvoyant": (20.5, 0.0322), "lt_u": (23.9, 0.028)}
    points |= {"lt_ua": (23.9, 0.028), "lt_i": (21.8, 0.0488), "static": (44.2, 0.0064)}
    rows = [(name, 1e3 * usd, share) for name, (usd, share) in points.items()]
    frame = pd.DataFrame(rows, columns=["policy", "usd", "missed_share"])
    figure = replay_figures.draw_cost_against_misses(frame)
    figure.canvas.draw()
    [axes] = figure.axes
    inside = axes.get_window_extent()
    labels = [text for text in axes.texts if text.get_text() != "better"]
    assert sorted(name for label in labels for name in label.get_text().split(", ")) == sorted(points)
    for label in labels:
        group = np.array([points[name] for name in label.get_text().split(", ")])
        assert label.xy == pytest.approx((group[:, 0].max(), 100 * group[:, 1].mean()))  # where its line ends
        box, point = Text.get_window_extent(label), axes.transData.transform(label.xy)
        assert min(abs(box.x0 - point[0]), abs(box.x1 - point[0])) < 0.05 * inside.width, label.get_text()
        assert abs((box.y0 + box.y1) / 2 - point[1]) < 0.35 * inside.height, label.get_text()
        assert inside.y0 <= box.y0, label.get_text()
        assert box.y1 <= inside.y1, label.get_text()
    plt.close(figure)


def test_a_label_is_next_to_a_single_point():
    assert figure_style.label_positions(np.array([0.2, 0.99]), np.array([0.5, 0.5]), [5, 5]) == [
        (0.2 + LABEL_GAP, 0.5),
        pytest.approx((0.99 - LABEL_GAP - 5 * LETTER_WIDTH, 0.5)),  # left of it: the axes end
    ]


def test_equal_curves_share_a_line_and_others_do_not():
    nines = pd.DataFrame({"lt_u": [0.0, 1.0, 3.5], "corrected": [0.0, 1.1, 3.5], "lt_ua": [0.0, 1.001, 3.5]})
    assert replay_figures.group_same_curves(nines) == [["lt_u", "lt_ua"], ["corrected"]]


def test_the_strictest_slo_of_the_present_tiers():
    catalogue = load_catalogue()
    assert catalogue.strictest_tier(["niw", "iw_normal", "iw_fast"]) == "iw_fast"
    assert catalogue.strictest_tier(["niw", "iw_normal"]) == "iw_normal"
    assert catalogue.strictest_tier(["niw"]) is None


def score_five_requests(settings: RunSettings, tier: str) -> RunSettings:
    """A lake of its own with five requests of a tier under one policy, scored."""
    ttft_slo_s = settings.catalogue.tiers[tier].ttft_slo_s
    row = {**dict.fromkeys(SCHEMAS["outcomes"].names), "arrived_at": datetime(2025, 7, 15, tzinfo=UTC)}
    row |= {"tier": tier, "llm": "a", "region": "east", "app": "rag", "served_region": "east", "e2e_s": 9.0}
    row |= {"status": "finished", "ttft_slo_s": ttft_slo_s, "deadline_s": 600.0}
    rows = [row | {"request_id": n, "ttft_s": 20.0 * n} for n in range(5)]
    hour = {
        "hour_start": row["arrived_at"],
        "llm": "a",
        "served_region": "east",
        "gpu": "h100",
        "gpus_per_instance": 1,
    }
    hour |= {**dict.fromkeys(("booting_s", "draining_s", "donated_s"), 0.0), "serving_s": 3600.0}
    hour |= {"kv_utilisation_share": 0.5, "usd_per_gpu_hour": 12.0}
    where = {"trace": settings.trace, "day": DAY}
    for table, content in (("outcomes", rows), ("fleet_hours", [hour])):
        settings.lake.write(table, pa.Table.from_pylist(content, SCHEMAS[table]), **where, policy="lt_i")
    write_tiers(settings.lake, settings.trace, settings.catalogue)
    settings.lake.write("scorecard", settings.lake.sql("marts/scorecard.sql", **where), **where)
    return settings


@pytest.mark.parametrize(
    ("tier", "label"), [("iw_normal", "iw_normal requests, %"), ("niw", replay_figures.NO_INTERACTIVE)]
)
def test_a_trace_without_iw_fast_has_a_scoreboard_and_figures(tmp_path, monkeypatch, tier, label):
    settings = score_five_requests(load_settings("sageserve", tmp_path / "lake"), tier)
    (row,) = settings.lake.sql("select * from scoreboard").to_pylist(maps_as_pydicts="strict")
    share = {"iw_normal": 0.8, "niw": 1.0}[tier]
    assert (row["requests"], row["attainment_by_tier"]) == (5, {tier: share})
    strictest = (tier, share, pytest.approx(76.0)) if tier == "iw_normal" else (None, None, None)
    assert (row["strictest_tier"], row["attainment_share"], row["ttft_p95_s"]) == strictest
    assert row["usd"] == 12.0
    import matplotlib.pyplot as plt

    drawn = []
    monkeypatch.setattr(plt, "close", drawn.append)
    chosen = {name: replay_figures.REPLAY_DRAWINGS[name] for name in ("ttft_cdf", "cost_against_misses")}
    assert all(path.is_file() for path in figure_files.draw_day_figures(settings, DAY, chosen).values())
    texts = [axes.get_ylabel() for figure in drawn for axes in figure.axes]
    texts += [text.get_text() for figure in drawn for text in figure.texts]
    assert label in texts


def test_a_saved_figure_carries_its_titles_and_numbers(tmp_path: Path) -> None:
    """Pages compare a picture with the figures that they print."""
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2)
    left.set_title("static  12 GPU-h", loc="left")
    right.text(0, 0, "up to 516")
    figure_files.save_figure(figure, tmp_path / "figure.png")
    assert Image.open(tmp_path / "figure.png").info["Description"] == "static  12 GPU-h\nup to 516"


def test_a_smaller_copy_keeps_the_colour_of_every_policy(tmp_path: Path) -> None:
    """Thin lines of all policies on one picture: their pixels are off by less than 5 of 255 on average."""
    figure, axes = plt.subplots(figsize=(9, 5))
    for n, name in enumerate(REPLAY_POLICIES):
        axes.plot([0, 1], [n, n + 3], color=figure_style.POLICY_COLOURS[name], linewidth=1)
    figure_files.save_figure(figure, tmp_path / "all.png")
    whole = Image.open(tmp_path / "all.png").convert("RGB")
    whole.thumbnail((900, 900))
    pixels = np.asarray(whole).astype(int)
    copied = Image.open(io.BytesIO(figure_files.figure_thumbnail(tmp_path / "all.png"))).convert("RGB")
    is_coloured = np.ptp(pixels, axis=2) > 40
    assert np.abs(np.asarray(copied).astype(int) - pixels)[is_coloured].mean() < 5
