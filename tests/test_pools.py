"""Pools of an llm: which lists of them cannot be, and what a plan makes of those that can."""

import re
from pathlib import Path

import numpy as np
import pytest

from assets.lake.settings import Settings, load_settings
from assets.plans.inputs import Load, hour_problems, problem_template
from assets.plans.kinds import by_cell, by_pool, kinds, options, pools, services
from models.plan import corrected, paper
from models.plan.solver import Options
from models.plan.violations import violations
from models.world.catalogue import CATALOGUE_DIR, load_catalogue
from models.world.loading import load_config
from models.world.reading import ConfigError

LLM = "llama2-70b"
PREFILL = '{ gpu = "h100-80gb", tensor_parallel = 2, role = "prefill"'
DECODE = '{ gpu = "h100-80gb", tensor_parallel = 4, role = "decode"'
EXACT = Options(gap_share=0.0)


def config_of(folder: Path, deployed: str, more: str = "") -> str:
    """A run of llama2-70b in so many pools, written to a file; its path."""
    path = folder / "pools.toml"
    path.write_text(
        'based_on = "office"\n[trace]\nname = "pools"\nfirst_day = 2025-07-01\ndays = 3\nseed = 1\n'
        f"[fleet]\ninstances_at_start = 2\nmin_instances = 0\nmax_instances = 6\n{more}\n"
        f"[fleet.deployments]\n{LLM} = [{deployed}]\n"
    )
    return str(path)


@pytest.mark.parametrize(
    ("deployed", "message"),
    [
        (PREFILL + " }", "prefill on h100-80gb: no then, which fits 0 pools that decode; it needs one. Give"),
        (f"{PREFILL} }}, {DECODE} }}, {DECODE} }}", "no then, which fits 2 pools that decode; it needs one"),
        (
            f'{PREFILL}, then = "far" }}, {DECODE}, name = "near" }}',
            "then = 'far', which fits 0 pools that decode",
        ),
        (DECODE + " }", "no pool takes requests: all decode. Add one that prefills."),
        (
            f'{PREFILL}, then = "a" }}, {DECODE}, name = "a" }}, {DECODE}, name = "b" }}',
            "decode on h100-80gb: no pool hands on to it. Let one prefill, or drop its role.",
        ),
        (
            f'{PREFILL}, name = "a" }}, {DECODE}, name = "a" }}',
            "two pools have one name among a, a. Rename one.",
        ),
        (
            f'{PREFILL} }}, {DECODE}, then = "a" }}',
            "decode on h100-80gb: then = 'a', but only pools that prefill hand on. Drop it.",
        ),
        (
            f'{{ gpu = "h100-80gb", tensor_parallel = 2 }}, {PREFILL} }}, {DECODE} }}',
            "some pools do whole requests, others decode or prefill; a plan counts on one or the other",
        ),
        (f'{PREFILL}, regions = ["easst"] }}, {DECODE} }}', "unknown region 'easst'. Did you mean 'east'"),
        (
            f'{PREFILL}, regions = ["east", "west"] }}, {DECODE}, regions = ["east"] }}',
            "no instance decodes (h100-80gb) in west. Give both the same regions.",
        ),
        (
            f"{PREFILL}, min_instances = 9 }}, {DECODE} }}",
            "min_instances = 9, instances_at_start = 2, max",
        ),
        (f'{PREFILL}, role = "idle" }}', "role"),
    ],
)
def test_pools_that_cannot_be_are_refused_by_name(tmp_path: Path, deployed: str, message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)) as refused:
        load_settings(config_of(tmp_path, deployed), tmp_path / "lake")
    assert "\n" not in str(refused.value)
    assert "pools.toml" in str(refused.value)


def test_pools_without_a_link_are_refused(tmp_path: Path) -> None:
    for file in CATALOGUE_DIR.glob("*.toml"):
        text = "\n".join(line for line in file.read_text().splitlines() if "link_gbit_per_s =" not in line)
        (tmp_path / file.name).write_text(text)
    unlinked, deployed = load_catalogue(tmp_path), f"{PREFILL} }}, {DECODE} }}"
    with pytest.raises(ConfigError, match=r"h100-80gb has no link_gbit_per_s to hand KV caches over"):
        load_config(config_of(tmp_path, deployed), unlinked)
    load_config(config_of(tmp_path, deployed, "link_gbit_per_s = 25.0"), unlinked)


def asked(settings: Settings, theta: list[float], tokens_per_s: float, programme: str = "corrected"):
    """An hour in which every region asks for so much."""
    template = problem_template(settings, theta, programme)
    regions = len(template.regions)
    load = Load(np.full((1, 1, regions, 4), tokens_per_s), np.zeros((1, 1, regions)))
    return hour_problems(template, load)[0]


TWO_KINDS = (
    '{ gpu = "h100-80gb", tensor_parallel = 2 }, '
    '{ gpu = "h100-80gb", tensor_parallel = 4, regions = ["east", "west"], max_instances = 3 }'
)


@pytest.mark.parametrize("programme", [paper, corrected], ids=["paper", "corrected"])
def test_the_cheaper_kind_is_planned_and_the_other_where_the_first_ones_limit_binds(
    tmp_path: Path, programme: object
) -> None:
    """1,000 tokens/s of 2 GPUs are cheaper than 1,400 of 4: six of those, then the second where it may."""
    settings = load_settings(config_of(tmp_path, TWO_KINDS), tmp_path / "lake")
    assert options(settings) == [("h100-80gb", 2), ("h100-80gb", 4)]
    for tokens_per_s, cheap, dear in ((900, 1, 0), (5500, 6, 0), (7000, 6, 1), (12000, 6, 3)):
        problem = asked(settings, [1000.0, 1400.0], float(tokens_per_s))._replace(
            epsilon=1.0, boot_cold_s=np.zeros((1, 3))
        )
        central = list(problem.regions).index("central")
        problem.demand_tokens_per_s[0, central] = min(tokens_per_s, 5500.0)
        plan = programme.solve(problem, EXACT)  # type: ignore[attr-defined]
        assert violations(problem, plan) == []
        assert plan.instances[0, 0].tolist() == [cheap, dear]
        assert plan.instances[0, central].tolist() == [cheap, 0]


def test_an_instance_that_neither_part_can_do_without_is_planned_for_both(tmp_path: Path) -> None:
    """Prefill serves 2,000 tokens/s an instance, decode 500: each carries the whole demand."""
    settings = load_settings(config_of(tmp_path, f"{PREFILL} }}, {DECODE} }}"), tmp_path / "lake")
    assert services(settings) == [(LLM, "prefill"), (LLM, "decode")]
    problem = asked(settings, [2000.0, 500.0], 1400.0)._replace(epsilon=1.0)
    plan = corrected.solve(problem, EXACT)
    assert violations(problem, plan) == []
    assert plan.instances.sum(axis=2).tolist() == [[1] * 3, [3] * 3]
    assert problem.services == (f"{LLM} (prefill)", f"{LLM} (decode)")


def test_instances_of_a_plan_and_of_its_pools_are_the_same(tmp_path: Path) -> None:
    """Three pools, of which two are alike: the first of these is filled to its limit, then the next."""
    two = '{ gpu = "h100-80gb", tensor_parallel = 2'
    deployed = f"{two}, min_instances = 1, max_instances = 3 }}, {two} }}, {two[:-1]}4 }}"
    settings = load_settings(config_of(tmp_path, deployed), tmp_path / "lake")
    assert len(kinds(settings)) == 2
    assert len(pools(settings)) == 9
    planned = np.minimum(np.arange(2 * 6), 9).reshape(2, 1, 3, 2)  # hours, services, regions, options
    held = by_pool(settings, planned)
    assert held[1].tolist() == [3, 3, 7, 3, 5, 9, 3, 6, 9]
    for hour, of_pools in zip(planned, held.astype(np.int64), strict=True):
        assert (by_cell(settings, of_pools) == hour).all()
    assert held[0].tolist() == [0, 0, 1, 2, 0, 3, 3, 1, 5]
