"""Requests from ServeGen's rates: the counts that were measured, the gaps of the pattern, the tokens."""

import json
import tarfile
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from fleetcast.assets.lake.warehouse import Lake
from fleetcast.assets.traces.data_quality import assess_trace
from fleetcast.assets.traces.ingest import IngestError, ingest_file
from fleetcast.models.traffic import client_rates
from fleetcast.models.world.catalogue import load_catalogue

CATALOGUE = load_catalogue()
DEMAND = Path(__file__).resolve().parents[2] / "shared" / "data" / "demand"


def land(folder: Path, members: dict[str, bytes], rate_scale: float = 1.0) -> Lake:
    archive, files = folder / "sg.tar.gz", folder / "members"
    files.mkdir()
    with tarfile.open(archive, "w:gz") as packed:
        for name, content in members.items():
            (files / name).write_bytes(content)
            packed.add(files / name, f"data/language/m/{name}")
    (folder / "sg.toml").write_text(
        f'trace = "sg"\nstart = 2024-01-01T00:00:00Z\nrate_scale = {rate_scale}\n'
    )
    lake = Lake(folder / "lake")
    ingest_file(archive, lake, CATALOGUE)
    return lake


@pytest.mark.parametrize(
    ("pattern", "gap"),
    [
        ("Gamma,0.3", stats.gamma(0.3)),
        ("Gamma,2.5", stats.gamma(2.5)),
        ("Weibull,0.6", stats.weibull_min(0.6)),
    ],
)
def test_gaps_have_the_distribution_of_their_pattern(tmp_path, monkeypatch, pattern, gap):
    monkeypatch.setattr(client_rates, "BLOCK_REQUESTS", 1000)  # each slot is sampled in a block of its own
    rates = f"0,5,1,{pattern},1\n600,0,0,,0,0\n1200,2.5,1,{pattern},1\n".encode()
    tokens = {"input_tokens": {10: 0.25, 90: 0.75}, "output_tokens": {3: 0.4, 700: 0.6}}
    dataset = json.dumps({"0": {kind: str(shares) for kind, shares in tokens.items()}}).encode()
    lake = land(tmp_path, {"chunk-7-trace.csv": rates, "chunk-7-dataset.json": dataset})
    seconds = lake.sql("select epoch_us(arrived_at) / 1e6 - 1704067200 as s from requests order by s")[
        "s"
    ].to_numpy()
    assert [np.sum((seconds >= t) & (seconds < t + 600)) for t in (0, 600, 1200)] == [3000, 0, 1500]
    assert lake.sql("select count(distinct request_id) as n from requests")["n"].to_pylist() == [4500]
    gaps = np.diff(seconds[:3000])
    assert stats.kstest(gaps / gaps.mean(), lambda x: gap.cdf(x * gap.mean())).pvalue > 0.01
    for kind, shares in tokens.items():
        found = lake.read("requests").to_pandas()[kind].value_counts(normalize=True)
        assert found.to_dict() == pytest.approx(shares, abs=0.03)


def test_real_clients_keep_their_rates_their_tokens_and_their_silences(tmp_path):
    if not DEMAND.exists():
        pytest.skip("ServeGen's m-small is not beside the repository (../shared/data/demand)")
    wanted = {"chunk-36-trace.csv", "chunk-5-trace.csv", "chunk-36-dataset.json"}
    members = {}
    for name in ("traces.tar.gz", "datasets.tar.xz"):
        with tarfile.open(DEMAND / f"servegen_m-small.{name}") as packed:
            for member in packed:
                if Path(member.name).name in wanted:
                    members[Path(member.name).name] = packed.extractfile(member).read()
    scale = 1.3e-4
    lake = land(tmp_path, members, scale)
    counts = dict(
        lake.sql("select app, count(*) as n from requests group by app").to_pandas().itertuples(index=False)
    )
    silent = True
    for client, app in (("36", "client-36"), ("5", "client-5-pooled-tokens")):
        rates = np.loadtxt(
            members[f"chunk-{client}-trace.csv"].decode().splitlines(), delimiter=",", usecols=1
        )
        expected = rates.sum() * 600 * scale
        assert counts[app] == pytest.approx(expected, abs=4 * np.sqrt(rates.size) / 2)
        silent &= rates == 0
    assess_trace(lake, "sg")
    found = lake.sql("select epoch(silence_start) as start, slots from silences").to_pylist()
    slots = {int(f["start"] - 1_704_067_200) // 600 + n for f in found for n in range(f["slots"])}
    assert silent.sum() == 37  # the collection gaps that the file is known for
    assert len(slots) >= 5  # those of the hours that bring 20 requests a slot at this scale
    assert slots <= set(np.flatnonzero(silent))


def test_multimodal_tokens_are_summed_and_empty_windows_are_skipped(tmp_path):
    """Keys as in ServeGen's mm-image; where nothing came all is 0, and the window before holds."""
    none = {
        f"{kind}_{what}": "{0: 1.0}" for kind in ("image", "audio", "video") for what in ("tokens", "count")
    }
    silent = {"text_tokens": "{0: 1.0}", **none, "output_tokens": "{0: 1.0}"}
    seen = {
        **{**none, "text_tokens": "{100: 1.0}", "output_tokens": "{7: 1.0}"},
        **{"image_count": "{0: 0.5, 3: 0.5}", "image_tokens": "{1000: 0.5, 3000: 0.5}"},
        **{"video_count": "{1: 1.0}", "video_tokens": "{50: 1.0}"},
    }
    tokens = json.dumps({"0": seen, "21600": silent}).encode()
    rates = b"0,5,1,Gamma,1,1\n21600,5,1,Gamma,1,1\n"
    own = {"chunk-3-trace.csv": rates, "chunk-3-dataset.json": tokens}
    pooled = {"chunk-4-trace.csv": rates, "chunk-4-dataset.json": json.dumps({"0": silent}).encode()}
    lake = land(tmp_path, {**own, **pooled})
    assert lake.sql("from quarantine").num_rows == 0
    rows = lake.sql("select *, input_tokens - 150 - 2000 * images as rest from requests").to_pandas()
    assert set(rows["app"]) == {"client-3", "client-4-pooled-tokens"}
    assert len(rows) == 12_000
    for app, own_rows in rows.groupby("app"):
        with_images = own_rows["images"] > 0
        assert set(own_rows["images"]) == {0, 3}, app
        assert with_images.mean() == pytest.approx(0.5, abs=0.05)
        assert set(own_rows["rest"][~with_images]) == {0}
        binomial = own_rows["rest"][with_images].value_counts(normalize=True).sort_index()
        assert list(binomial.index) == [-3000, -1000, 1000, 3000]  # three images, each of its own size
        assert binomial.to_numpy() == pytest.approx([0.125, 0.375, 0.375, 0.125], abs=0.05)


def test_a_request_of_more_items_than_anybody_sends_is_put_aside(tmp_path):
    counts = {"text_tokens": "{9: 1.0}", "output_tokens": "{7: 1.0}", "image_tokens": "{9: 1.0}"}
    tokens = json.dumps({"0": {**counts, "image_count": "{2000000000: 1.0}"}}).encode()
    lake = land(tmp_path, {"chunk-0-trace.csv": b"0,0.01,1,Gamma,1,1", "chunk-0-dataset.json": tokens})
    assert set(lake.read("quarantine")["reason"].to_pylist()) == {
        "more than 10,000 images, audios or videos in one request"
    }


def test_more_requests_than_anybody_wants_are_refused(tmp_path):
    with pytest.raises(
        IngestError, match=r"it has 6\d+ requests: give it a rate_scale in its mapping file\.$"
    ):
        land(tmp_path, {"chunk-0-trace.csv": b"0,1000000,1,Gamma,1,1", "chunk-0-dataset.json": b"{}"})


def test_an_archive_without_token_files_is_refused(tmp_path):
    with pytest.raises(IngestError, match=r"looks like servegen but lacks chunk-#-dataset.json"):
        land(tmp_path, {"chunk-0-trace.csv": b"0,1,1,Gamma,1,1"})
