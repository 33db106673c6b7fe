"""Decisions of vLLM's own scheduler, recorded: the kernel makes the same ones.

`VLLM_PYTHON=... python tests/bench/vllm_scheduler.py` records them. `python tests/bench vllm_scheduler`
compares 100,000 requests with the scheduler itself.
"""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from vllm_cases import (
    block_hashes,
    case_fleet,
    case_setting,
    play_kernel,
    recorded_case,
    recorded_latency,
    sample_conversations,
    worst_difference,
)

from fleetcast.models.traffic.answer_blocks import RequestBlocks, append_answer_blocks

RECORDED = json.loads(gzip.decompress((Path(__file__).parent / "vllm_decisions.json.gz").read_bytes()))


@pytest.mark.parametrize(
    "recorded", RECORDED, ids=lambda one: str(one["case"]["engine"]["max_num_batched_tokens"])
)
def test_the_kernel_decides_as_vllm_does(recorded) -> None:
    catalogue, config = case_setting()
    case = recorded_case(recorded["case"])
    fleet = case_fleet(case, catalogue, config)._replace(latency=recorded_latency(recorded["case"]))
    played = play_kernel(case, fleet, catalogue, config)
    rows = np.arange(case.arrival_s.size)
    assert worst_difference(played, case, rows, recorded["result"]) < 1e-9
    if case.previous is not None and not any(recorded["result"]["preemptions"]):
        assert played.reused_tokens.tolist() == recorded["result"]["reused_tokens"]


def test_the_blocks_of_answers_are_those_of_the_next_turn() -> None:
    case = sample_conversations("turns", 7, 300, 1_000_000)
    whole = RequestBlocks(**block_hashes(case))  # of the tokens themselves, answers included
    counts = np.diff(whole.first_hash)
    place = np.arange(whole.hashes.size) - np.repeat(whole.first_hash[:-1], counts)
    in_prompt = case.input_tokens // case.block_size
    prompts = RequestBlocks(
        np.concatenate([[0], np.cumsum(in_prompt)]), whole.hashes[place < np.repeat(in_prompt, counts)]
    )
    session = np.arange(case.previous.size)
    for row in np.flatnonzero(case.previous >= 0):
        session[row] = session[case.previous[row]]
    made = append_answer_blocks(prompts, session, case.input_tokens, case.output_tokens, case.block_size)
    cached = (case.input_tokens + case.output_tokens - 1) // case.block_size  # the last token never is
    assert np.diff(made.first_hash).tolist() == cached.tolist()
    truth = whole.hashes[place < np.repeat(cached, counts)]
    pairs = set(zip(made.hashes.tolist(), truth.tolist(), strict=True))
    assert len(pairs) == len(set(made.hashes.tolist())) == len(set(truth.tolist()))
    assert (cached > in_prompt).sum() > 100  # requests whose answers fill a block
    lonely = append_answer_blocks(
        prompts, np.full(session.size, -1), case.input_tokens, case.output_tokens, case.block_size
    )
    assert len(set(lonely.hashes.tolist())) > len(set(truth.tolist()))  # nothing says whose answer it is
