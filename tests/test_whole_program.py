"""The kernel as one program: what an entry reaches is linked after all that call it, or compiling fails."""

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetcast.models.replay import whole_program
from fleetcast.models.replay.whole_program import EntryCompiler, InnerCompiler, InnerLibrary

inner = numba.njit(
    pipeline_class=InnerCompiler, no_cpython_wrapper=True, no_cfunc_wrapper=True, nogil=True, _nrt=False
)
entry = numba.njit(pipeline_class=EntryCompiler, nogil=True, _nrt=False)


@inner
def doubled(number: float) -> float:
    return 2 * number


@inner
def doubled_twice(number: float) -> float:
    return doubled(doubled(number))


@st.composite
def programs(draw: st.DrawFn) -> list[InnerLibrary]:
    """Functions, each of which calls some of those after it; any order of calls."""
    size = draw(st.integers(1, 12))
    libraries = [InnerLibrary.__new__(InnerLibrary) for _ in range(size)]
    for place, library in enumerate(libraries):
        later = libraries[place + 1 :]
        library._linking_libraries = draw(st.permutations(later))[: draw(st.integers(0, len(later)))]
    return libraries


@given(programs(), st.data())
def test_each_function_comes_after_all_that_call_it(
    libraries: list[InnerLibrary], data: st.DataObject
) -> None:
    called = data.draw(st.lists(st.sampled_from(libraries), min_size=1, unique_by=id))
    ordered = whole_program.list_callers_first(called)
    reached, waiting = set(called), [*called]
    while waiting:
        new = [library for library in waiting.pop()._linking_libraries if library not in reached]
        reached |= set(new)
        waiting += new
    assert len(ordered) == len(reached)
    assert set(ordered) == reached
    place = {library: at for at, library in enumerate(ordered)}
    for caller in ordered:
        assert all(place[caller] < place[library] for library in caller._linking_libraries)


def test_two_entries_of_a_process_share_functions() -> None:
    @entry
    def first(number: float) -> float:
        return doubled_twice(number) + 1

    @entry
    def second(number: float) -> float:
        return first(number) + doubled(number)

    assert (first(1.0), second(1.0)) == (5.0, 7.0)


def test_a_function_without_code_is_an_error_and_no_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whole_program, "list_callers_first", lambda libraries: list(libraries)[:0])

    @entry
    def broken(number: float) -> float:
        return doubled(number)

    with pytest.raises(Exception, match=r"broken: _ZN.*doubled.* was not linked"):
        broken(1.0)


@pytest.mark.parametrize("at", [-1, 3])
def test_an_index_never_counts_from_the_end_and_is_an_error_with_numbas_check(
    at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    @inner
    def read(numbers: np.ndarray, at: int) -> float:
        return numbers[at]

    def read_by_inner(numbers: np.ndarray, at: int) -> float:
        return read(numbers, at)

    memory = np.arange(5.0)
    assert entry(read_by_inner)(memory[1:4], at) == memory[1 + at]
    monkeypatch.setattr(numba.config, "BOUNDSCHECK", 1)
    read.recompile()
    with pytest.raises(IndexError, match="out of bounds"):
        entry(read_by_inner)(memory[1:4], at)
    assert entry(read_by_inner)(memory[1:4], 2) == memory[3]
    assert numba.njit(lambda numbers: numbers[-1])(memory) == memory[4], "other functions keep Python's rule"
