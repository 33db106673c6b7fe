"""Chains of legs: an answer is judged, and where its score is too low the next leg begins (Cascadia 3.3).

The scores are the trace's, the thresholds are the rules': a leg of an llm whose score is below
`go_on_below[llm]` is followed, after `judge_s[llm]` seconds, by the next row of its chain, which enters the
fleet like an arrival, with its own llm, prompt and answer. Else the rows behind it are spared.
"""

from models.replay.compiled import called
from models.replay.handover import put_under_way
from models.replay.state import ENDED, NOBODY, Rules, State, Trace


@called
def is_first_leg(trace: Trace, request: int) -> bool:
    """Whether the row arrives by itself."""
    return trace.leg.size == 0 or trace.leg[request] == 0


@called
def go_on(trace: Trace, rules: Rules, state: State, request: int, now: float) -> None:
    """A leg has ended: its request goes on to the next one, or that and what is behind it is spared."""
    llm, behind = trace.llm[request], trace.then[request]
    if behind != NOBODY and trace.score[request] < rules.go_on_below[llm]:
        state.ready_s[behind] = now + rules.judge_s[llm]
        put_under_way(state, behind)
    else:
        spare(trace, state, request)


@called
def spare(trace: Trace, state: State, request: int) -> None:
    """The legs behind this one will not begin."""
    if trace.then.size == 0:
        return
    behind = trace.then[request]
    while behind != NOBODY:
        state.spared[behind] = True
        state.counts[ENDED] += 1
        behind = trace.then[behind]
