"""`fleetcast advise`: its numbers against the plan and a direct replay; the page; limitations of a trace."""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import date
from html import unescape
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from jinja2 import UndefinedError
from typer.testing import CliRunner

from fleetcast.assets.advice import (
    advice_config,
    advice_pipeline,
    advise,
    import_trace,
    limitations,
    next_day_plan,
    policy_comparison,
    promise_sections,
    rule_replays,
    short_trace,
    sized_plan,
    tomorrow_draws,
)
from fleetcast.assets.advice.advice_page import render_advice_page, write_advice
from fleetcast.assets.advice.advise import AdviceRequest, advise_trace
from fleetcast.assets.advice.data_sections import empty_sections
from fleetcast.assets.advice.imported_trace import CONFIG_FORMAT, ImportedTrace
from fleetcast.assets.advice.phrases import answer_sentences, saves_or_costs
from fleetcast.assets.advice.remedies import describe_remedy
from fleetcast.assets.lake.settings import Progress, RunSettings, Step, load_settings
from fleetcast.assets.lake.warehouse import Lake
from fleetcast.assets.pages.templates import fill_template
from fleetcast.assets.replays.compact_schedule import pool_size_shares
from fleetcast.assets.studies import latency_error, try_fleet
from fleetcast.assets.studies.rent_hour import busiest_hour
from fleetcast.assets.traces.landing import land_file
from fleetcast.models.aliases import Floats
from fleetcast.models.latency.latency_errors import unbiased_law
from fleetcast.models.world.catalogue import load_catalogue
from fleetcast.models.world.config_loading import load_config
from fleetcast.models.world.fleet_config import Deployment
from fleetcast.models.world.toml_dataclasses import ConfigError
from fleetcast.pipelines.advise_cli import parse_output_folder
from fleetcast.pipelines.cli import cli_app

TODAY = "2 x llama3.1-8b@l40s-48gb"
DAY, NEXT = date(2025, 3, 5), date(2025, 3, 6)


def trace(path: Path, hours: int, per_hour: int, **more: Any) -> Path:
    """Write requests of a service that is busiest at noon, as BurstGPT does; `more` replaces columns."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(3)
    rate = 1.0 - 0.8 * np.cos(2 * np.pi * np.arange(hours) / 24)
    counts = rng.poisson(per_hour * rate)
    at_s = np.sort(np.repeat(3600.0 * np.arange(hours), counts) + 3600.0 * rng.random(counts.sum()))
    size = at_s.size
    rows = {
        "Timestamp": at_s.round(2),
        "Model": "llama3.1-8b",
        "Request tokens": rng.integers(100, 3000, size),
        "Response tokens": rng.integers(20, 300, size),
        "Total tokens": 1,
        "Log Type": np.where(np.arange(size) % 3 == 0, "Batch", "Conversation log"),
    }
    pd.DataFrame(rows | more).to_csv(path, index=False)
    path.with_suffix(".toml").write_text("start = 2025-03-03T00:00:00Z\n", encoding="utf-8")
    return path


@contextmanager
def few_replays() -> Iterator[None]:
    """No search for GPUs, no levels, few days and versions."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(advice_pipeline, "MAX_LLMS_RENTED_FOR", 0)
        patch.setattr(advice_pipeline, "MOST_PAST_DAYS", 2)
        patch.setattr(promise_sections, "GRADED_DRAWS", 8)
        patch.setattr(tomorrow_draws, "MOST_DRAWS", 10)
        patch.setattr(advice_config, "ADVICE_POLICIES", ("static", "day_ahead", "clairvoyant"))
        patch.setattr(advice_pipeline, "run_level_trials", lambda *_: False)
        yield


class CheckedProgress(Progress):
    """Each bar has words, and a number of steps."""

    @contextmanager
    def bar(self, label: str, total: int) -> Iterator[Step]:
        assert isinstance(label, str)
        assert total >= 0
        with super().bar(label, total) as step:
            yield step


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any], RunSettings]:
    """Advise on three days of a service, with today's fleet."""
    folder = tmp_path_factory.mktemp("advise")
    file = trace(folder / "service.csv", 72, 150)
    with few_replays():
        request = AdviceRequest(file, current_fleet=TODAY)
        found = advise_trace(request, folder / "out", CheckedProgress())
    files = write_advice(found, folder / "out")
    settings = load_settings(str(folder / "out" / "advice.toml"), str(folder / "out" / "lake"))
    return folder / "out", json.loads(files.numbers.read_text(encoding="utf-8")), settings


def planned_capacity(settings: RunSettings) -> Floats:
    """Return tokens/s of an instance of each option in the plan of NEXT, shape (i, j, k)."""
    return rule_replays.read_midnight_plan(settings, NEXT).capacity


def test_the_page_shows_the_plan_table(output: tuple[Path, dict[str, Any], RunSettings]) -> None:
    _, found, settings = output
    rows = settings.lake.read("day_ahead_plans", trace="service", day=NEXT).to_pandas()
    tomorrow = found["tomorrow"]
    assert tomorrow["day"] == str(NEXT)
    assert "llm" not in lines(found), "the only llm has a profile"
    assert tomorrow["usd"] == pytest.approx(rows["usd"].sum()) != 0
    assert tomorrow["gpu_hours"] == (rows["instances"] * rows["gpus_per_instance"]).sum()
    of_sizes = pool_size_shares(settings, NEXT, settings.grid.instance_capacity(planned_capacity(settings)))
    shares = of_sizes[np.clip(rows["instances"], 1, len(of_sizes)).to_numpy() - 1, 0]
    sustained = rows["instances"] * rows["capacity_tokens_per_s"] * shares
    assert shares.min() < 1, "small pools sustain less"
    np.testing.assert_allclose(rows["sustained_tokens_per_s"], sustained)
    carried = sustained.groupby(rows["hour_start"]).sum()
    planned = [row["carries_tokens_per_s"] for row in tomorrow["by_hour"]]
    assert planned == pytest.approx(carried.to_list())
    assert {row["gpu"] for row in tomorrow["hours"]} == {"l40s-48gb"}  # today's GPU type
    assert all(row["forecast_tokens_per_s"] > 0 for row in tomorrow["by_hour"])


def test_the_saving_equals_a_direct_replay(output: tuple[Path, dict[str, Any], RunSettings]) -> None:
    folder, found, settings = output
    saving, [board] = (
        found["saving"],
        [row for row in found["board"]["policies"] if row["policy"] == "day_ahead"],
    )
    assert saving["day"] == str(DAY)
    assert saving["today_usd"] == pytest.approx(24 * 2 * 3.5)
    held = settings.lake.sql(
        "select sum(serving_s + booting_s + draining_s) / 3600 * 3.5 as usd from fleet_hours "
        "where policy = 'day_ahead' and day = $day",
        day=DAY,
    )
    assert board["usd"] == pytest.approx(held["usd"][0].as_py())
    catalogue = load_catalogue()
    office = load_config("office", catalogue)
    rows = pd.read_csv(folder / "landing" / "service.csv")
    day = rows[rows["Timestamp"] >= 2 * 86_400]
    requests = pd.DataFrame(
        {
            "arrival_s": (day["Timestamp"] - day["Timestamp"].iloc[0]).to_numpy(),
            "llm": "llama3.1-8b",
            "tier": np.where(day["Log Type"] == "Batch", "niw", "iw_fast"),
            "input_tokens": day["Request tokens"].to_numpy(np.int32),
            "output_tokens": day["Response tokens"].to_numpy(np.int32),
            "cached_tokens": pd.array([None] * len(day), "Int32"),
            "prefix_hashes": None,
        }
    )
    direct = try_fleet.run_fleet_trial(
        TODAY, try_fleet.parse_fleet(TODAY, catalogue, office), requests, catalogue, office
    )
    assert saving["today_in_time_share"] == pytest.approx(direct.row["iw_fast_attainment_share"], abs=2e-3)


def test_no_fleet_is_advised_that_misses_its_target(tmp_path: Path) -> None:
    """One prompt in ten takes one L40S too long, however many instances there are."""
    count = len(pd.read_csv(trace(tmp_path / "long.csv", 60, 20)))
    sizes = np.where(np.arange(count) % 10 == 0, 20_000, 500)
    file = trace(tmp_path / "long.csv", 60, 20, **{"Request tokens": sizes})
    with few_replays(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(rule_replays, "ADVISED_RULES", ("static", "day_ahead"))
        patch.setattr(sized_plan, "write_sized_plan", lambda *_: pytest.fail("a plan is written"))
        patch.setattr(advise, "describe_remedy", lambda *of: f"{describe_remedy(*of)} {of[-1]} draws")
        found = advise_trace(AdviceRequest(file, current_fleet=TODAY), tmp_path / "out", Progress())
    promise, first = found["promise"], found["answer"][0]
    assert (promise["is_kept"], promise["kept_share"], promise["headroom_share"]) == (False, 0.1, 0.0)
    assert first.startswith("No fleet of this kind keeps its target on 2025-03-06 (95 % of iw_fast")
    assert "so none is advised" in first
    assert first.endswith(" 10 draws"), "as many as the promise has"
    assert re.search(r"\d x \S+ per instance would|use a smaller llm", first)
    assert found["answer"][1].startswith(f"Closest comes the rule {promise['rule']}, planned with")
    assert not any(" run " in line or "instead of" in line for line in found["answer"])
    assert not any(row["is_advised"] for row in found["choice"]["rules"])
    assert (found["board"]["advised"], found["saving"]) == (None, None)
    text = render_advice_page(found)
    assert "which is not advised" in text
    assert "What to run, by hour" not in text


def test_the_page_has_numbers_and_loads_nothing(output: tuple[Path, dict[str, Any], RunSettings]) -> None:
    folder, found, _ = output
    text = (folder / "advice.html").read_text(encoding="utf-8")
    assert text == render_advice_page(found)  # a function of advice.json alone
    assert not re.search(r"https?://|<script|<link|<img|@import|url\((?!#)", text)
    tomorrow, saving = found["tomorrow"], found["saving"]
    for amount_usd in (tomorrow["usd"], saving["today_usd"], found["promise"]["usd_high"]):
        assert f"{amount_usd:,.2f}" in text
    assert all(f"<code>{one.split(' &&')[0]}" in unescape(text) for one in found["commands"].values())
    other = json.loads(json.dumps(found))
    other["tomorrow"]["usd"] += 1000.0
    assert render_advice_page(other) != text
    assert len(found["answer"]) == 4


def test_the_advised_policy_is_the_rule_of_the_promise(
    output: tuple[Path, dict[str, Any], RunSettings],
) -> None:
    _, found, settings = output
    rule, replayed = found["promise"]["rule"], [row["policy"] for row in found["board"]["policies"]]
    assert found["board"]["advised"] == (rule if rule in replayed else None)
    attained = settings.lake.sql(
        "select tier, attainment_share from tier_attainment "
        "where policy = $rule and day = $day order by tier",
        rule=rule,
        day=DAY,
    ).to_pylist()
    assert (
        [(row["tier"], row["in_time_share"]) for row in found["certainty"]["tiers"]]
        == [(row["tier"], pytest.approx(row["attainment_share"])) for row in attained]
        != []
    )

    def advised(promise: dict[str, Any] | None) -> str | None:
        section = policy_comparison.policies_section(settings, DAY, promise)
        assert [row["policy"] for row in section["policies"]] == replayed
        return section["advised"]

    assert advised({"rule": "static", "is_kept": True}) == "static"
    assert advised({"rule": "reflex", "is_kept": True}) is None  # not replayed as shipped
    assert advised({"rule": "static", "is_kept": False}) is None
    assert advised(None) == "day_ahead"


def test_commands_of_the_page_work_from_an_empty_folder(
    output: tuple[Path, dict[str, Any], RunSettings], tmp_path: Path
) -> None:
    """Those that take seconds are executed; the command of the whole page is read."""
    folder, found, _ = output
    commands = found["commands"]
    quick = [commands[name] for name in ("trace", "tomorrow", "certainty")]
    paths = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    ended = subprocess.run(
        ["sh", "-ec", "\n".join(quick)],
        cwd=tmp_path,
        env={**os.environ, "PATH": paths},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ended.returncode == 0, ended.stderr
    assert "day_ahead" in ended.stdout
    assert shlex.split(commands["all"]) == [
        *("fleetcast", "advise", str(folder.parent / "service.csv"), "--fleet", TODAY, "--out", str(folder)),
    ]


def test_the_command_of_a_page_has_every_option(
    output: tuple[Path, dict[str, Any], RunSettings], tmp_path: Path
) -> None:
    columns = {"arrived_at": "start time", "input_tokens": "it's"}
    request = AdviceRequest(
        trace="a b", as_llm="qwen3-32b", current_fleet='2 x "q"', gpus=("a", "b"), survive="none",
        provider="oci", prices=Path("/my prices.toml"), columns=columns,
    )  # fmt: skip
    lake, *words = shlex.split(advise.command_of_page(request, tmp_path / "my page", output[2].lake))
    assert lake == f"FLEETCAST_LAKE={output[2].lake.root}"
    assert words == [
        *("fleetcast", "advise", "--trace", "a b", "--assume-llm", "qwen3-32b", "--fleet", '2 x "q"'),
        *("--columns", "arrived_at=start time,input_tokens=it's", "--gpus", "a,b", "--survive", "none"),
        *("--provider", "oci", "--prices", "/my prices.toml", "--out", str(tmp_path / "my page")),
    ]


def test_recorded_hits_of_a_prefix_cache_are_used_and_the_page_says_so(tmp_path: Path) -> None:
    """Half of each prompt was cached on the first day; the second has no record, or 90 %."""

    def imported(name: str, second_day: float | None) -> ImportedTrace:
        at = pd.date_range("2025-03-03", periods=192, freq="15min")
        share = np.where(at.day == 3, 0.5, np.nan if second_day is None else second_day)
        rows = {"arrived_at": at, "input_tokens": 1000, "output_tokens": 9, "cached_tokens": 1000 * share}
        file = tmp_path / name / f"{name}.csv"
        file.parent.mkdir()
        pd.DataFrame(rows).astype({"cached_tokens": "Int64"}).to_csv(file, index=False)
        return import_trace.import_trace_file(
            file, tmp_path / name / "page", load_catalogue(), None, Progress()
        )

    deployments = {"llama3.1-8b": advice_config.SizedDeployment(Deployment("l40s-48gb", 1), 1)}
    both, one = imported("both", 0.9), imported("one", None)
    assert both.cached_share == pytest.approx(0.7)
    assert one.cached_share is None
    lines = [
        list(limitations.cache_limitations(trace))
        for trace in (both, one, one._replace(has_prompt_hashes=True))
    ]
    assert [len(found) for found in lines] == [1, 0, 1]
    assert lines[0][0][1].startswith("70 % of the prompt tokens were in a prefix cache")
    assert "each prompt counts whole" in lines[2][0][1]
    texts = [advice_config.advice_config_text(each, deployments, load_catalogue()) for each in (both, one)]
    assert ['prefix = "given"' in text for text in texts] == [True, False]
    for each, text in zip((both, one), texts, strict=True):
        (tmp_path / f"{each.trace}.toml").write_text(text, encoding="utf-8")
    settings, others = (
        load_settings(str(tmp_path / f"{each.trace}.toml"), str(each.lake.root)) for each in (both, one)
    )
    hour = short_trace.hour_of_rows(short_trace.read_requests_by_hour(settings).tail(4))
    assert hour.trace.cached_tokens.tolist() == [900] * 4
    unknown = short_trace.hour_of_rows(short_trace.read_requests_by_hour(others).tail(4))
    assert unknown.trace.cached_tokens.tolist() == [0] * 4
    scope = (settings, date(2025, 3, 5), "llama3.1-8b", 100.0)
    assert busiest_hour(*scope).trace.cached_tokens.tolist() == [900] * 4
    assert busiest_hour(others, *scope[1:]).trace.cached_tokens.tolist() == [0] * 4


def test_a_rule_that_decides_during_the_day_has_the_cost_of_its_promise(
    output: tuple[Path, dict[str, Any], RunSettings],
) -> None:
    """Not that of the instances it starts from, all day."""
    other = json.loads(json.dumps(output[1]))
    assert other["promise"]["is_kept"]
    assert "starts and stops" not in answer_sentences(other)[0]
    assert "serve scaler" not in render_advice_page(other)
    other["promise"] |= {"rule": "compact", "usd_low": 101.0, "usd_high": 203.0}
    first = answer_sentences(other)[0]
    assert "begin with" in first
    assert "The rule compact starts and stops instances during the day: 101 to 203 USD (" in first
    assert not re.search("same all day|by hour as below|GPU-hours,", first)
    assert "serve scaler --from" in render_advice_page(other)


@pytest.mark.parametrize(
    ("rule", "usd", "shown"), [("day_ahead", 37.4, "37"), ("compact", 37.4, "37"), ("day_ahead", 0.9, "")]
)
def test_what_errors_of_profiles_cost_is_in_the_answer_and_on_the_page(
    output: tuple[Path, dict[str, Any], RunSettings], rule: str, usd: float, shown: str
) -> None:
    other = json.loads(json.dumps(output[1]))
    assert other["promise"]["profile_errors_usd"] >= 0
    other["promise"] |= {"rule": rule, "profile_errors_usd": usd}
    sentence = f"{shown} USD of it are for engines that may be slower than their profiles"
    assert (sentence in answer_sentences(other)[0]) == bool(shown)
    assert ("of the day are for engines that may be slower" in render_advice_page(other)) == bool(shown)


def test_the_page_says_what_is_known_and_no_more(output: tuple[Path, dict[str, Any], RunSettings]) -> None:
    _, found, settings = output
    text = render_advice_page(found)
    assert "The promise as it would have been" in text
    assert "kept:" not in text
    assert ">reserved<" not in text
    other = json.loads(json.dumps(found))
    [gpu] = other["prices"]["reserved_usd_per_gpu_hour"]
    other["prices"]["reserved_usd_per_gpu_hour"][gpu] = 1.25
    assert ">reserved<" in render_advice_page(other)
    one = [{"llm": "llama3.1-8b", "usd": 84.0, "instances": 1}]
    assert next_day_plan.whole_instance_error_share(settings, one) is None
    many = [{"llm": "llama3.1-8b", "usd": 8400.0, "instances": 100}]
    assert next_day_plan.whole_instance_error_share(settings, many) == pytest.approx(
        latency_error.usd_error_share(settings, many)
    )


@pytest.mark.parametrize("error_share", [None, 0.27])
def test_a_page_without_a_promise_has_the_error_of_whole_instances_only(
    output: tuple[Path, dict[str, Any], RunSettings], error_share: float | None
) -> None:
    """As of a nightly run."""
    other = json.loads(json.dumps(output[1]))
    other |= {"promise": None, "choice": None, "grades": [], "split": {}, "prices": None}
    other["tomorrow"]["usd_error_share"] = error_share
    both = [*answer_sentences(other), render_advice_page(other)]
    assert [("either way" in text) for text in both].count(True) == (0 if error_share is None else 2)


@pytest.mark.parametrize(
    ("low", "high", "usd", "is_sure", "words"),
    [
        (97.0, 111.0, 20.0, True, "tomorrow this plan saves 97 to 111 USD"),
        (97.0, 111.0, -14.0, False, "tomorrow this plan saves 97 to 111 USD"),
        (-5.0, 111.0, 20.0, False, "tomorrow this plan costs up to 5 USD more or saves up to 111 USD"),
        (-0.4, 111.0, 20.0, False, "tomorrow this plan saves 0 to 111 USD"),
        (-40.0, -3.0, -14.0, True, "tomorrow this plan costs 3 to 40 USD more"),
        (-40.0, -3.0, 14.0, False, "tomorrow this plan costs 3 to 40 USD more"),
    ],
)
def test_a_saving_is_sure_where_the_last_day_and_tomorrow_agree(
    output: tuple[Path, dict[str, Any], RunSettings],
    low: float, high: float, usd: float, is_sure: bool, words: str,
) -> None:  # fmt: skip
    """The last day's saving is one value, tomorrow's an interval: neither says what the other is."""
    _, found, _ = output
    other = json.loads(json.dumps(found))
    [advised] = [row for row in other["choice"]["rules"] if row["is_advised"]]
    advised["last_day"] |= {"usd": 100.0 - usd, "gpu_hours": 100.0}
    today = advised["last_day"] | {"usd": 100.0, "fleet": "2 x b"}
    other["promise"] |= {"usd_low": 100.0 - high, "usd_high": 100.0 - low}
    saving = policy_comparison.saving_section(date(2025, 7, 9), other, today)
    assert saving is not None
    assert saving["is_beyond_error"] == is_sure
    other["saving"] = saving
    text = " ".join(render_advice_page(other).split())
    assert f"{words}, nine times in ten" in " ".join(answer_sentences(other))
    last = f"saves {usd:.2f}&nbsp;USD" if usd > 0 else f"costs {-usd:.2f}&nbsp;USD more"
    assert f"2 x b, at 100.00&nbsp;USD (1.00 per GPU-hour), this plan {last} on 2025-07-09; over" in text
    assert f" it {saves_or_costs(low, high, 2).replace(' USD', '&nbsp;USD')} nine times in ten.</p>" in text


def test_the_second_instance_has_its_price(output: tuple[Path, dict[str, Any], RunSettings]) -> None:
    """One L40S would serve this load: the second costs 24 hours of it."""
    _, found, _ = output
    survival = found["promise"]["survival"]
    assert survival["kind"] == "instance"
    assert survival["usd"] == pytest.approx(24 * 3.5, rel=0.02)
    assert f"To survive the loss of one instance is {survival['usd']:,.0f} USD of it." in found["answer"][0]
    assert re.search(r"84\.\d\d&nbsp;USD \(3\.50 per l40s-48gb hour", render_advice_page(found))
    assert survival["regions"] == found["trace"]["regions"]
    other = json.loads(json.dumps(found))
    other["promise"]["survival"]["usd"] = -0.3  # by chance: a spare instance moves the others
    assert "survive" not in answer_sentences(other)[0]
    assert "one instance, which costs nothing here" in render_advice_page(other)
    other["promise"]["survival"] |= {"kind": "region", "regions": ["east", "west"], "usd": survival["usd"]}
    text = " ".join(render_advice_page(other).split())
    assert "so the plan adds a second. The fleet is in east and west: if one is lost, the rest" in text
    other["trace"]["regions"] = ["east", "west"]
    assert "adds a second" not in render_advice_page(other)


def test_where_scaling_adds_nothing_the_page_says_so(
    output: tuple[Path, dict[str, Any], RunSettings],
) -> None:
    _, found, _ = output
    assert (found["promise"]["rule"], found["choice"]["scaling_saves"]) == ("static", False)
    assert "Scaling by the hour adds nothing here." in found["answer"][2]
    sentence = "No rule can cost less than the smallest fleet that survives"
    assert [row["rule"] for row in found["choice"]["rules"]] == ["static"]
    assert re.search(rf"costs as little\.\s+{sentence}", render_advice_page(found))
    other = json.loads(json.dumps(found))
    other["saving"]["today_usd"] = 6 * other["saving"]["advised_usd"]
    assert "adds nothing here: your fleet is 6.0 times too large." in answer_sentences(other)[2]
    other["choice"]["scaling_saves"] = True
    other["choice"]["rules"] *= 2
    assert sentence not in render_advice_page(other)
    assert not any("Scaling by the hour" in line for line in answer_sentences(other))


def test_versions_of_tomorrow_have_latencies_by_the_kind_of_their_profile(
    output: tuple[Path, dict[str, Any], RunSettings], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = output[2]
    [error] = latency_error.profile_errors(settings)

    def errors() -> list[float]:
        draws = tomorrow_draws.sample_tomorrow(settings, NEXT, [DAY], 40)
        known = settings.catalogue.latency.index(error.profile)
        drawn = [draw.catalogue.latency[known].decode_s[0] for draw in draws]
        assert len(set(drawn)) == len(draws) == 40
        return [abs(np.log(seconds / error.profile.decode_s[0])) for seconds in drawn]

    assert np.median(errors()) == pytest.approx(error.decode_share, rel=0.5)
    sure = error._replace(kind="measured", prefill=unbiased_law(0.01), decode=unbiased_law(0.01))
    monkeypatch.setattr(tomorrow_draws, "profile_errors", lambda _: [sure])
    assert np.median(errors()) == pytest.approx(0.01, rel=0.5)


def test_a_template_escapes_its_values_and_refuses_a_missing_one(tmp_path: Path) -> None:
    path = tmp_path / "name.html.j2"
    path.write_text("<p>{{ name }}</p>", encoding="utf-8")
    assert fill_template(path, name="<b> & co") == "<p>&lt;b&gt; &amp; co</p>"
    with pytest.raises(UndefinedError):
        fill_template(path)
    cut = path.with_name("cut.html.j2")
    cut.write_text("{{ name | first_letters }}", encoding="utf-8")
    for length in (1, 2):
        assert (
            fill_template(cut, {"first_letters": lambda name, n=length: name[:n]}, name="abc")
            == "abc"[:length]
        )


def lines(found: dict[str, Any]) -> dict[str, str]:
    """The lines of the limitations, by key."""
    assert all("\n" not in one["line"] for one in found["cannot"])
    return {one["key"]: one["line"] for one in found["cannot"]}


def test_a_trace_of_an_hour_is_sized_by_replay(tmp_path: Path) -> None:
    """The trace also has one client only, no llm, no urgency and no region: each is a line."""
    rng = np.random.default_rng(4)
    at = pd.Timestamp("2025-03-03T09:00") + pd.to_timedelta(np.sort(3500 * rng.random(40_000)), unit="s")
    rows = {"TIMESTAMP": at, "ContextTokens": rng.integers(1, 4000, 40_000), "GeneratedTokens": 200}
    pd.DataFrame(rows).to_csv(tmp_path / "hour.csv", index=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(advice_pipeline, "MAX_LLMS_RENTED_FOR", 0)
        query = AdviceRequest(tmp_path / "hour.csv", current_fleet="1 x llama3.1-8b@l40s-48gb")
        found = advise_trace(query, tmp_path / "out", Progress())
    assert found["board"] is None
    assert found["tomorrow"]["basis"] == "trace"
    notes = lines(found)
    assert {"short", "one_client", "llm", "tier", "region", "levels", "quality"} <= set(notes)
    assert "1.0 hours, not two whole days" in notes["short"]
    [size] = [row for row in found["tomorrow"]["hours"] if row["hour"] == 9]
    settings = load_settings(str(tmp_path / "out" / "advice.toml"), str(tmp_path / "out" / "lake"))
    rows_there = short_trace.read_requests_by_hour(settings)
    office = load_config("office", load_catalogue())
    request_rows = rows_there.assign(tier="iw_fast", cached_tokens=pd.NA, prefix_hashes=None)

    def attained(count: int) -> float:
        fleet = f"{count} x llama3.1-8b@l40s-48gb"
        pools = try_fleet.parse_fleet(fleet, load_catalogue(), office)
        return try_fleet.run_fleet_trial(fleet, pools, request_rows, load_catalogue(), office).row[
            "iw_fast_attainment_share"
        ]

    assert size["instances"] > 1
    saving = found["saving"]
    assert saving["today_in_time_share"] == pytest.approx(attained(1))
    assert (saving["today_usd"], saving["advised_usd"]) == (24 * 3.5, found["tomorrow"]["usd"])
    assert attained(size["instances"]) >= 0.95 > attained(size["instances"] - 1)
    least = f"{100 * attained(size['instances']):,.1f} %"
    assert found["answer"][1].startswith(
        f"At least {least} of the requests of each recorded hour are in time"
    )
    assert found["answer"][2].startswith("The trace names no llm: llama3.1-8b is assumed")
    assert f"at least {least} of".replace(" %", "&nbsp;%") in " ".join(render_advice_page(found).split())


@pytest.mark.parametrize(("survive", "least"), [("none", 1), ("instance", 2)])
def test_a_short_trace_has_the_instances_to_survive(tmp_path: Path, survive: str, least: int) -> None:
    """One instance would serve these few requests."""
    file = trace(tmp_path / "few.csv", 3, 30)
    with few_replays():
        query = AdviceRequest(file, current_fleet=TODAY, survive=survive)
        found = advise_trace(query, tmp_path / "out", Progress())
    assert {row["instances"] for row in found["tomorrow"]["hours"]} == {least}
    assert ("so that one may fail" in found["answer"][1]) is (least > 1)
    with pytest.raises(
        ConfigError, match=r"--survive region needs a trace of two days: .* Take --survive inst"
    ):
        advise_trace(AdviceRequest(file, current_fleet=TODAY, survive="region"), tmp_path / "r", Progress())


def test_other_gpus_of_a_short_trace_save_what_their_own_advice_costs_less(tmp_path: Path) -> None:
    """One L40S per instance serves what two do, and there is no cheaper type for these requests."""
    file = trace(tmp_path / "few.csv", 3, 30)
    first, other = "2 x llama3.1-8b@2xl40s-48gb", "2 x llama3.1-8b@1xl40s-48gb"
    with few_replays():
        found, cheapest = (
            advise_trace(AdviceRequest(file, current_fleet=fleet), tmp_path / fleet, Progress())
            for fleet in (first, other)
        )
    saved = found["tomorrow"]["usd"] - cheapest["tomorrow"]["usd"]
    assert found["split"] == {"gpu_type": {"fleet": other, "usd": saved, "usd_low": None, "usd_high": None}}
    assert saved == pytest.approx(24 * 2 * 3.5)
    line = (
        f"Other GPUs, at most {other}, attain the target in each recorded hour too, for 168 USD less a day."
    )
    assert line in found["answer"]
    assert cheapest["split"] == {}
    settings = load_settings(str(tmp_path / first / "advice.toml"), str(tmp_path / first / "lake"))
    [pool] = settings.config.fleet.deployments["llama3.1-8b"]
    assert pool.gpus == 2, "the plan stays that of today's GPUs"


@pytest.mark.parametrize(("usd", "missed"), [(8.0, (0, 0)), (8.0, (1, 0)), (8.0, (0, 1)), (10.0, (0, 0))])
def test_other_gpus_save_only_where_both_attain_the_target(usd: float, missed: tuple[int, int]) -> None:
    """The fleet is that of the largest hour: two regions together, each llm."""
    counts = {"east": (1, 3), "west": (2, 1)}
    hours = [
        {"llm": "a", "gpus_per_instance": 2, "gpu": "l40s-48gb", "hour": hour, "instances": of_hour}
        for of_region in counts.values()
        for hour, of_hour in enumerate(of_region)
    ]
    plan, rented = {"usd": 10.0, "missed_hours": missed[0]}, {"usd": usd, "missed_hours": missed[1]}
    found = next_day_plan.rented_saving(plan, rented | {"hours": hours})
    saved = {"fleet": "4 x a@2xl40s-48gb", "usd": 2.0, "usd_low": None, "usd_high": None}
    assert found == ({"gpu_type": saved} if usd < 10 and missed == (0, 0) else {})


def test_a_short_trace_that_no_fleet_serves_in_time_is_said_so(tmp_path: Path) -> None:
    """As many instances as are replayed do not shorten a prompt of 20,000 tokens, of which one in ten is."""
    count = len(pd.read_csv(trace(tmp_path / "long.csv", 3, 300)))
    sizes = np.where(np.arange(count) % 10 == 0, 20_000, 500)
    file = trace(tmp_path / "long.csv", 3, 300, **{"Request tokens": sizes, "Log Type": "Conversation log"})
    with few_replays():
        found = advise_trace(AdviceRequest(file, current_fleet=TODAY), tmp_path / "out", Progress())
    tomorrow, answer = found["tomorrow"], found["answer"]
    assert found["split"] == {}
    known = [row for row in tomorrow["hours"] if row["requests"]]
    assert all(row["attainment_share"] < 0.95 for row in known)
    assert (tomorrow["missed_hours"], tomorrow["sized_hours"]) == (3, 3)
    assert answer[0].startswith(
        "No fleet of this kind serves 95 % of the requests in time in 3 of the 3 hours"
    )
    assert "of its target even with 32 instances: 2 x " in answer[0]
    assert answer[1].startswith("Closest to it comes, for a day like this trace,")
    text = render_advice_page(found)
    assert "In 3 of the 3 hours (of each llm and region) none do" in text
    assert "What to run, by hour" not in text


@pytest.mark.parametrize(("curve", "fewest"), [((0.5, 0.8, 0.96, 0.97), 3), ((0.5, 0.8, 0.9, 0.9), 4)])
def test_the_fewest_instances_of_an_hour(
    curve: tuple[float, ...], fewest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a count that attains, the fewest of those replayed that attain most: 1, 2, 4, 8 and 16 are."""
    catalogue = load_catalogue()
    settings = RunSettings(Lake(Path("unused")), catalogue, load_config("office", catalogue))
    rows = pd.DataFrame({"arrival_s": [0.0], "input_tokens": [9], "output_tokens": [9], "cached_tokens": [0]})

    def replay(*given: Any) -> Any:
        [(_, count)] = given[3]
        return SimpleNamespace(attainment_share=curve[min(count, len(curve)) - 1])

    monkeypatch.setattr(short_trace, "replay_hour", replay)
    sized = advice_config.SizedDeployment(Deployment("l40s-48gb", 1), 1)
    hour = short_trace.hour_of_rows(rows)
    found = short_trace.size_hour(settings, sized, "llama3.1-8b", hour, 1)
    assert found == (fewest, curve[fewest - 1])


@pytest.mark.parametrize(
    ("of_two", "cheapest"), [((2, 0.94), ("h100-80gb", 1)), ((2, 0.96), ("l40s-48gb", 2))]
)
def test_a_short_trace_runs_on_the_cheapest_type_for_its_largest_hour(
    of_two: tuple[int, float],
    cheapest: tuple[str, int],
    output: tuple[Path, dict[str, Any], RunSettings],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of four requests: the hour with most tokens, on the cheaper of those that attain, or on two L40S."""
    sizes = {"l40s-48gb": (2, 0.94), "a100-80gb": (6, 0.96), "h100-80gb": (2, 0.96)}
    hours = ["one", "two", "two", "two"]
    rows = pd.DataFrame({"llm": "llama3.1-8b", "hour_start": hours, "arrival_s": [0.0, 1.0, 2.0, 3.0]})
    rows = rows.assign(input_tokens=[90, 50, 50, 50], output_tokens=9, cached_tokens=0)

    def size(_: RunSettings, sized: advice_config.SizedDeployment, __: str, hour: Any, least: int) -> Any:
        assert (len(hour.trace.arrival_s), least) == (3, 2)
        is_two = sized.deployment == Deployment("l40s-48gb", 2)
        return of_two if is_two else sizes[sized.deployment.gpu]

    monkeypatch.setattr(short_trace, "read_requests_by_hour", lambda _: rows)
    monkeypatch.setattr(short_trace, "size_hour", size)
    wanted = (["llama3.1-8b"], {"llama3.1-8b": list(sizes)}, Progress())
    [found] = short_trace.cheapest_sized_deployments(output[2], *wanted).values()
    assert (found.deployment.gpu, found.deployment.tensor_parallel) == cheapest
    assert found.peak_instances == 2


def test_gpu_types_are_taken_by_cost_and_those_that_attain_far_less_last(
    output: tuple[Path, dict[str, Any], RunSettings], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cheapest may attain a little less in its busiest hour: the promise is of the day."""
    usd = {gpu: load_catalogue().gpus[gpu].usd_per_hour for gpu in ("l40s-48gb", "a100-80gb", "h100-80gb")}
    sizes = {"l40s-48gb": (1, 0.80), "a100-80gb": (3, 0.91), "h100-80gb": (1, 0.99)}  # two GPUs: as many
    assert usd["l40s-48gb"] < usd["h100-80gb"] < 3 * usd["a100-80gb"]

    def size(_: RunSettings, sized: advice_config.SizedDeployment, llm: str, __: object, least: int) -> Any:
        assert (llm, least) == ("llama3.1-8b", 4), "two in each region"
        return sizes[sized.deployment.gpu]

    tier = SimpleNamespace(attainment_target_share=0.95)
    load = SimpleNamespace(input_tokens=100.0)
    price = SimpleNamespace(gpu="h100-80gb", gpus=1)
    held = [(SimpleNamespace(decode=SimpleNamespace(price=price)), 2)]
    setting = SimpleNamespace(per_s=2.0, load=load, tier_name="iw_fast", tier=tier)
    answer = SimpleNamespace(setting=setting, fleets={"one_type": SimpleNamespace(held=held)})
    monkeypatch.setattr(advice_pipeline, "busiest_hour", lambda *given: given[-1] == 200.0 or 1 / 0)
    monkeypatch.setattr(short_trace, "size_hour", size)
    wanted = (NEXT, {"llama3.1-8b": answer}, ["llama3.1-8b"], {"llama3.1-8b": ["tiny", *sizes]}, Progress())
    config = output[2].config
    [pool] = config.fleet.deployments["llama3.1-8b"]
    pools = (replace(pool, regions=("east", "west")),)
    fleet = replace(config.fleet, deployments={"llama3.1-8b": pools}, min_instances=2)
    gpus = output[2].catalogue.gpus
    gpus = gpus | {"tiny": replace(gpus["l40s-48gb"], memory_gib=1.0)}  # it holds no llm
    catalogue = replace(output[2].catalogue, gpus=gpus)
    settings = replace(output[2], config=replace(config, fleet=fleet), catalogue=catalogue)
    choices = advice_pipeline.choose_deployments(settings, *wanted)
    sized = [choice["llama3.1-8b"] for choice in choices]
    found = [(one.deployment.gpu, one.deployment.tensor_parallel, one.peak_instances) for one in sized]
    assert found == [("h100-80gb", 1, 1), ("a100-80gb", 1, 3), ("h100-80gb", 2, 1)]
    [alone] = advice_pipeline.choose_deployments(output[2], NEXT, {}, ["llama3.1-8b"], {}, Progress())
    assert alone["llama3.1-8b"].peak_instances == 2


@pytest.mark.parametrize(("heads", "smallest", "degrees"), [(32, 1, [1, 2]), (33, 1, [1]), (32, 8, [8])])
def test_each_gpu_type_has_a_larger_deployment_where_the_heads_divide(
    heads: int, smallest: int, degrees: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    catalogue = load_catalogue()
    llms = {"llama3.1-8b": replace(catalogue.llms["llama3.1-8b"], heads=heads)}
    monkeypatch.setattr(advice_config, "min_tensor_parallel", lambda *_: smallest)
    given = (replace(catalogue, llms=llms), load_config("office", catalogue))
    found = advice_config.small_deployments("llama3.1-8b", "h100-80gb", *given)
    assert found == [Deployment("h100-80gb", degree) for degree in degrees]


def test_the_next_gpu_type_is_planned_where_the_first_breaks_its_promise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The third costs more than what the second promises, so it is not planned."""
    gpus, planned, plan = ["l40s-48gb", "a100-80gb", "h100-80gb"], list[str](), advise.planned_sections

    def plan_and_break(settings: RunSettings, *given: Any) -> dict[str, Any]:
        planned.extend(pool.gpu for pool in settings.config.fleet.deployments["llama3.1-8b"])
        sections = plan(settings, *given)
        sections["promise"]["is_kept"] = len(planned) > 1
        return sections

    choices = [{"llama3.1-8b": advice_config.SizedDeployment(Deployment(gpu, 1), 1)} for gpu in gpus]
    monkeypatch.setattr(rule_replays, "ADVISED_RULES", ("static",))  # quicker
    monkeypatch.setattr(advise, "planned_sections", plan_and_break)
    monkeypatch.setattr(advice_pipeline, "choose_deployments", lambda *_: choices)
    with few_replays():
        found = advise_trace(AdviceRequest(trace(tmp_path / "two.csv", 50, 20)), tmp_path / "out", Progress())
    assert planned == gpus[:2]
    assert "a100-80gb" in found["answer"][0]
    assert found["promise"]["is_kept"]


def test_of_gpu_types_that_break_their_promise_the_closest_is_shown() -> None:
    """It is planned again: the plans in the lake are of the last one."""
    shares, planned = {"a100-80gb": 0.6, "h100-80gb": 0.8, "l40s-48gb": 0.8}, list[str]()
    in_time = {"a100-80gb": 0.99, "h100-80gb": 0.9, "l40s-48gb": 0.8}  # of equal shares it decides

    def plan(choice: advise.Deployments) -> dict[str, Any]:
        planned.append(choice["llama3.1-8b"].deployment.gpu)
        gpu = planned[-1]
        return {"promise": {"is_kept": False, "kept_share": shares[gpu], "in_time_low_share": in_time[gpu]}}

    choices = [{"llama3.1-8b": advice_config.SizedDeployment(Deployment(gpu, 1), 1)} for gpu in shares]
    none_usd = [0.0, 0.0, 0.0]
    found, sections = advise.plan_cheapest_kept(choices, none_usd, plan)
    assert (found, planned[-1], len(planned)) == (choices[1], "h100-80gb", 4)
    assert sections["promise"]["kept_share"] == 0.8
    assert advise.plan_cheapest_kept(choices[:2], none_usd[:2], plan)[0] is choices[1]
    assert len(planned) == 6, "the last one is not planned twice"
    in_time["l40s-48gb"] = 0.95
    assert advise.plan_cheapest_kept(choices, none_usd, plan)[0] is choices[2]


@pytest.mark.parametrize(
    ("least_usd", "promised_usd", "order"),
    [
        ([480.0, 338.0, 500.0], [480.0, 338.0, 1.0], [0, 1]),  # the third is dearer at least
        ([480.0, 338.0, 300.0], [480.0, 400.0, 600.0], [0, 1, 2, 1]),  # the cheapest is planned again
        ([480.0, 338.0, 300.0], [480.0, None, 470.0], [0, 1, 2]),  # the second breaks its promise
        ([480.0, 480.0, 480.0], [480.0, 1.0, 1.0], [0]),
    ],
)
def test_of_gpu_types_that_keep_their_promise_the_cheapest_is_advised(
    least_usd: list[float], promised_usd: list[float | None], order: list[int]
) -> None:
    choices: list[advise.Deployments] = [{} for _ in least_usd]
    planned = list[int]()

    def plan(choice: advise.Deployments) -> dict[str, Any]:
        planned.append(next(n for n, other in enumerate(choices) if other is choice))
        usd = promised_usd[planned[-1]]
        broken = {"is_kept": False, "kept_share": 0.5, "in_time_low_share": 0.5}
        return {"promise": broken if usd is None else {"is_kept": True, "usd_mean": usd}}

    found, sections = advise.plan_cheapest_kept(choices, least_usd, plan)
    assert planned == order
    assert found is choices[order[-1]]
    assert sections["promise"]["usd_mean"] == promised_usd[order[-1]]


def test_the_saving_of_other_gpus_is_that_of_their_promise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One L40S per instance serves what two do: half the cost, and the plan stays that of today's GPUs."""
    monkeypatch.setattr(rule_replays, "ADVISED_RULES", ("static",))  # quicker
    request = AdviceRequest(trace(tmp_path / "two.csv", 50, 20), current_fleet="2 x llama3.1-8b@2xl40s-48gb")
    with few_replays():
        found = advise_trace(request, tmp_path / "out", Progress())
    rented = found["split"]["gpu_type"]
    assert rented["fleet"] == "2 x llama3.1-8b@1xl40s-48gb"
    assert rented["usd"] == pytest.approx(24 * 2 * 3.5) == found["promise"]["usd_mean"] / 2
    assert {row["gpus_per_instance"] for row in found["tomorrow"]["hours"]} == {2}
    assert "2xl40s-48gb" in found["promise"]["fleet"]
    [line] = [line for line in found["answer"] if "2 x llama3.1-8b@1xl40s-48gb" in line]
    assert "for 168 USD less a day." in line
    text = render_advice_page(found)
    assert "tomorrow saves 168.00&nbsp;USD; no version of the day changes that by a USD" in text
    assert text.count('<div class="scroll end"><p class="keys">') == 2, "a narrow screen shows tomorrow first"
    rented |= {"usd_low": 167.99, "usd_high": 168.01}
    assert "168.01" not in render_advice_page(found)
    rented |= {"usd_low": 150.0, "usd_high": 180.0}
    assert re.search(
        r"USD, and nine times in ten\s+saves 150\.00 to 180\.00&nbsp;", render_advice_page(found)
    )
    rented |= {"usd": -3.0}
    assert "tomorrow costs 3.00&nbsp;USD more" in render_advice_page(found)
    settings = load_settings(str(tmp_path / "out" / "advice.toml"), str(tmp_path / "out" / "lake"))
    [pool] = settings.config.fleet.deployments["llama3.1-8b"]
    assert pool.gpus == 2


def test_an_llm_without_profile_has_no_fleet_until_it_is_mapped(tmp_path: Path) -> None:
    file = trace(tmp_path / "gpt.csv", 30, 20, Model="gpt-9")
    found = advise_trace(AdviceRequest(file), tmp_path / "out", Progress())
    assert found["tomorrow"] is None
    assert "no latency profile of gpt-9 (100 % of the requests)" in lines(found)["llm"]
    assert "--assume-llm llama3.1-70b" in lines(found)["llm"]
    assert "gpt-9" in render_advice_page(found)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(advice_pipeline, "MAX_LLMS_RENTED_FOR", 0)
        found = advise_trace(AdviceRequest(file, as_llm="qwen3-32b"), tmp_path / "out", Progress())
    assert {row["llm"] for row in found["tomorrow"]["hours"]} == {"qwen3-32b"}
    assert "qwen3-32b is planned instead" in lines(found)["llm"]
    assert found["trace"]["unprofiled_llms"] == {}


def test_llms_without_profile_do_not_prevent_a_plan_for_others(tmp_path: Path) -> None:
    known = ["meta-llama/Meta-Llama-3.1-8B", "llama3.1-8b", "llama3.1-8b"]
    names = np.resize(["gpt-9", *known], 100_000)
    whole = trace(tmp_path / "all.csv", 20, 20)
    count = len(pd.read_csv(whole))
    file = trace(tmp_path / "mixed.csv", 20, 20, Model=names[:count])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(advice_pipeline, "MAX_LLMS_RENTED_FOR", 0)
        found = advise_trace(AdviceRequest(file), tmp_path / "out", Progress())
    assert found["trace"]["requests"] == (names[:count] != "gpt-9").sum()
    assert "no latency profile of gpt-9 (25 % of the requests)" in lines(found)["llm"]
    assert "It serves no request of gpt-9 (25 % of all), of which there is no latency profile: " in " ".join(
        found["answer"]
    )
    assert {row["llm"] for row in found["tomorrow"]["hours"]} == {"llama3.1-8b"}


def write_azure(path: Path) -> Path:
    """Write requests as Azure does, without the column of output tokens and in a different time zone."""
    at = pd.date_range("2025-03-03T09:00", periods=10, freq="min", tz="+05:30")
    pd.DataFrame({"TIMESTAMP": at, "ContextTokens": 500}).to_csv(path, index=False)
    return path


def write_scored_answers(path: Path) -> Path:
    """Write scored answers, which are not requests."""
    pd.DataFrame({"query_id": ["q"], "llm": "llama3.1-8b", "score": 0.5, "output_tokens": 9}).to_csv(
        path, index=False
    )
    return path


def import_file(file: Path, folder: Path, **more: Any) -> tuple[ImportedTrace, dict[str, str]]:
    """Import a file into a lake of its own; return the trace and its limitations. Nothing is planned."""
    new = import_trace.import_trace_file(file, folder, load_catalogue(), None, Progress(), **more)
    return new, lines({"cannot": limitations.list_limitations(new, load_catalogue(), empty_sections(new))})


def test_missing_output_tokens_are_assumed_and_known_ones_stay(tmp_path: Path) -> None:
    imported, notes = import_file(write_azure(tmp_path / "mute.csv"), tmp_path / "a", output_tokens=150)
    assert (imported.requests, imported.output_tokens) == (10, 1500)
    assert "150 tokens are assumed (--outputs)" in notes["outputs"]
    assert "(10) each is 10.0 %" in notes["few"]
    assert "without a time zone are read as UTC" in notes["clock"]
    assert f"{imported.first_at:%H:%M}" == "03:30"  # of 09:00 in a zone 5:30 ahead
    file = trace(tmp_path / "half.csv", 3, 20)
    rows = pd.read_csv(file)
    rows["Response tokens"] = rows["Response tokens"].astype("Int64").mask(np.arange(len(rows)) % 2 == 0)
    rows.to_csv(file, index=False)
    begun = file.with_suffix(".toml").read_text(encoding="utf-8")
    file.with_suffix(".toml").unlink()
    share = (len(rows) + 1) // 2 / len(rows)
    left, notes = import_file(file, tmp_path / "b")
    assert left.requests == len(rows) // 2
    assert f"({100 * share:,.0f} %) are left out, and nothing is planned for them" in notes["left_out"]
    assert "--outputs TOKENS" in notes["left_out"]
    assert "assumed to arrive at 2024-01-01 00:" in notes["clock"]
    file.with_suffix(".toml").write_text(begun, encoding="utf-8")
    imported, notes = import_file(file, tmp_path / "b", output_tokens=150)
    assert imported.requests == len(rows)
    assert imported.output_tokens == rows["Response tokens"].fillna(150).sum()
    assert not {"left_out", "clock"} & notes.keys()  # its mapping file has the start


def test_unknown_regions_are_planned_as_one_region(tmp_path: Path) -> None:
    at, rows = pd.date_range("2025-03-03", periods=300, freq="min", tz="UTC"), np.arange(300)
    named = np.select([rows % 3 == 0, rows % 3 == 1], ["east", "eu-1"], 'a "quoted" one')
    tokens = {"input_tokens": 500, "output_tokens": np.where(rows % 2 == 0, 50, 0)}  # 0: unknown
    file = tmp_path / "away.parquet"
    pd.DataFrame({"request_id": rows, "arrived_at": at, **tokens, "region": named}).to_parquet(file)
    imported, notes = import_file(file, tmp_path / "a", output_tokens=50)
    assert (imported.requests, imported.regions, imported.left_out) == (300, ("central", "east"), {})
    assert imported.output_tokens == 300 * 50
    assert "(67 % of the rows): all of these are planned in one region, called central" in notes["region"]
    known, notes = import_file(file, tmp_path / "known")  # half of the rows are left out
    assert (known.requests, sum(known.left_out.values())) == (150, 150)
    assert "(67 % of the rows)" in notes["region"]
    file.with_suffix(".toml").write_text(
        'label_names = { "eu-1" = "west", \'a "quoted" one\' = "west" }', encoding="utf-8"
    )
    imported, notes = import_file(file, tmp_path / "a")  # its own mapping has precedence
    assert (imported.regions, "region" in notes) == (("east", "west"), False)


def test_distributed_llms_are_reported_and_assume_llm_replaces_them(tmp_path: Path) -> None:
    at = pd.date_range("2025-03-03T09:00", periods=200, freq="min")
    rows = {"TIMESTAMP": at, "ContextTokens": 500, "GeneratedTokens": 1}
    pd.DataFrame(rows).to_csv(tmp_path / "a.csv", index=False)
    catalogue, lake = load_catalogue(), Lake(tmp_path / "lake")
    land_file(tmp_path / "a.csv", lake, catalogue)
    imported = import_trace.copy_landed_trace(lake, "azure_llm", tmp_path / "out", catalogue, None)
    assert imported.distributed_keys == ("region", "llm", "tier")
    notes = lines({"cannot": limitations.list_limitations(imported, catalogue, empty_sections(imported))})
    assert "names no region and no llm and no tier: values were distributed" in notes["dealt"]
    assert "--assume-llm NAME" in notes["dealt"]
    assert "one token long" in notes["outputs"]
    rest = imported._replace(unprofiled={"gpt-9": 600}, requests_by_source_llm={})
    notes = lines({"cannot": limitations.list_limitations(rest, catalogue, empty_sections(rest))})
    assert "gpt-9 (75 % of the requests)" in notes["llm"]
    named = import_trace.copy_landed_trace(lake, "azure_llm", tmp_path / "out", catalogue, "qwen3-32b")
    assert (named.llms, named.distributed_keys, named.requests) == (("qwen3-32b",), ("region", "tier"), 200)


def test_a_day_that_is_cut_short_is_reported_and_planned(tmp_path: Path) -> None:
    """With few requests the cut cannot be detected; with many the lake knows the gap."""
    few, _ = import_file(trace(tmp_path / "few.csv", 50, 3), tmp_path / "a")
    assert (few.last_at.date(), few.day_to_plan) == (DAY, DAY)
    found = empty_sections(few) | {"tomorrow": {"day": DAY, "not_known": ""}}
    notes = lines({"cannot": limitations.list_limitations(few, load_catalogue(), found)})
    assert "breaks off at 01:28" in notes["cut"]
    many, _ = import_file(trace(tmp_path / "many.csv", 50, 300), tmp_path / "b")
    assert (many.last_at.date(), many.day_to_plan) == (DAY, NEXT)


def test_a_page_of_a_config_names_the_command_that_promises(tmp_path: Path) -> None:
    """The page itself has none: without this command the nightly run has nothing to grade."""
    new, _ = import_file(trace(tmp_path / "few.csv", 3, 20), tmp_path / "a")
    found = empty_sections(new) | {"tomorrow": {"day": NEXT, "not_known": ""}}

    def promise_line(imported: ImportedTrace) -> str:
        limits = limitations.list_limitations(imported, load_catalogue(), found)
        return lines({"cannot": limits})["promise"]

    assert "graded later: fleetcast plan promise." in promise_line(new._replace(format=CONFIG_FORMAT))
    assert "graded later" not in promise_line(new)


def test_files_not_written_by_advise_are_kept(
    output: tuple[Path, dict[str, Any], RunSettings], tmp_path: Path
) -> None:
    for name in ("lake", "landing"):
        kept = trace(tmp_path / name / name / "own.csv", 3, 20)
        with pytest.raises(ConfigError, match=r"would be removed.*--out"):
            import_file(kept, tmp_path / name)
        with pytest.raises(ConfigError, match=r"would be removed.*--out"):
            import_trace.copy_landed_trace(output[2].lake, "service", tmp_path / name, load_catalogue(), None)
        assert kept.is_file()
    again = tmp_path / "again"
    page = import_file(trace(tmp_path / "a.csv", 3, 20), again)[0]
    for _ in range(2):
        with pytest.raises(ConfigError, match="lies in the folder of the page"):
            import_trace.copy_landed_trace(page.lake, "a", again, load_catalogue(), None)
        with pytest.raises(ConfigError, match="lies in the folder of the page"):
            import_file(again / "landing" / "a.csv", again)
    assert page.lake.count("requests") == page.requests


def test_an_unwritable_folder_is_refused_before_work_begins(tmp_path: Path) -> None:
    file = trace(tmp_path / "a.csv", 3, 20)
    with pytest.raises(ConfigError, match=r"cannot be written: Not a directory\. Name another folder: --out"):
        import_file(file, file / "page")
    with pytest.raises(ValueError, match="a page is written to a disk"):
        parse_output_folder(Path("s3://bucket/page"))


REFUSED: list[tuple[Callable[[Path], list[str]], str]] = [
    (lambda at: [str(at / "none.csv")], "There is no file"),
    (
        lambda at: [str(trace(at / "mute.csv", 3, 20, **{"Response tokens": ""}))],
        "has the length of the answer",
    ),
    (lambda at: [str(trace(at / "a.csv", 3, 20)), "--as", "gpt-9"], "gpt-9"),
    (lambda at: [str(trace(at / "a.csv", 3, 20)), "--on", "2 x llama2-70b@h100-80gb"], "has no llama3.1-8b"),
    (lambda at: [str(trace(at / "a.csv", 3, 20)), "--gpus", "b999"], "b999"),
    (lambda at: [], "Name one of"),
    (lambda at: ["--config", "office", "--as", "llama3.1-8b"], "go with a trace"),
    (lambda at: ["--trace", "nobody"], "has no requests"),
    (lambda at: ["--trace", "nobody", "--outputs", "9"], "--outputs and --columns go with a FILE"),
    (lambda at: ["--config", "office", "--outputs", "9"], "--engines and --columns go with a trace"),
    (lambda at: [str(write_azure(at / "column.csv"))], "advise --outputs 200"),
    (lambda at: [str(at)], "is a folder. Name a trace file in it"),
    (lambda at: [str(write_scored_answers(at / "answers.csv"))], "holds scored answers, not requests"),
]


@pytest.mark.parametrize(("options", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_bad_options_are_refused_in_one_line(
    options: Callable[[Path], list[str]], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fleetcast.models.replay.session import background_compile

    monkeypatch.setattr(background_compile, "is_kernel_cached", lambda: True)
    monkeypatch.chdir(tmp_path)
    out = [] if "--config" in options(tmp_path) else ["--out", str(tmp_path / "out")]
    found = CliRunner().invoke(cli_app, ["advise", *options(tmp_path), *out, "-q"])
    assert found.exit_code == 2, found.output
    assert message in found.stderr
    assert len(found.stderr.strip().splitlines()) == 1


def test_a_trace_of_the_lake_is_copied_and_not_changed(
    output: tuple[Path, dict[str, Any], RunSettings], tmp_path: Path
) -> None:
    lake = output[2].lake
    before = sorted((str(path), path.stat().st_mtime_ns) for path in lake.root.rglob("*.parquet"))
    imported = import_trace.copy_landed_trace(lake, "service", tmp_path, load_catalogue(), None)
    assert sorted((str(path), path.stat().st_mtime_ns) for path in lake.root.rglob("*.parquet")) == before
    assert imported.lake.content("requests") == lake.content("requests")
    assert (imported.requests, imported.llms, imported.last_whole_day) == (
        output[1]["trace"]["requests"], ("llama3.1-8b",), DAY,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("file", "name"),
    [("my trace.csv.gz", "my_trace"), ("-x.jsonl", "x"), ("a.b.parquet", "a.b"), ("#.csv", "trace")],
)
def test_a_file_names_its_trace(file: str, name: str) -> None:
    assert import_trace.trace_name(Path(file)) == name


def test_a_fleet_that_lacks_an_llm_is_refused_before_work_begins(tmp_path: Path) -> None:
    file = trace(tmp_path / "two.csv", 3, 20)
    with pytest.raises(ConfigError, match="Add it, or name one llm"):
        advise_trace(
            AdviceRequest(file, current_fleet="1 x llama2-70b@2xh100-80gb + 1 x llama3.2-3b@h100-80gb"),
            tmp_path / "o",
            Progress(),
        )
