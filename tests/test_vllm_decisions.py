"""Decisions of vLLM's own scheduler, recorded: the kernel makes the same ones.

`VLLM_PYTHON=... python tests/bench/vllm_scheduler.py` records them; `python tests/bench vllm_scheduler`
compares
100,000 requests with the scheduler itself.
"""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from vllm_cases import case_fleet, play_kernel, recorded_case, recorded_latency, worst_difference

from fleetcast.models.world.catalogue import load_catalogue
from fleetcast.models.world.config_loading import load_config

RECORDED = json.loads(gzip.decompress((Path(__file__).parent / "vllm_decisions.json.gz").read_bytes()))


@pytest.mark.parametrize(
    "recorded", RECORDED, ids=lambda one: str(one["case"]["engine"]["max_num_batched_tokens"])
)
def test_the_kernel_decides_as_vllm_does(recorded) -> None:
    catalogue = load_catalogue()
    config = load_config("office", catalogue)
    case = recorded_case(recorded["case"])
    fleet = case_fleet(case, catalogue, config)._replace(latency=recorded_latency(recorded["case"]))
    played = play_kernel(case, fleet, catalogue, config)
    rows = np.arange(case.arrival_s.size)
    assert worst_difference(played, case, rows, recorded["result"]) < 1e-9
