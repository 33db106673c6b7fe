"""Compile the kernel as one program: its functions become machine code once, with the one that Python calls.

Numba makes machine code of every function, together with all functions that it calls. A function that is
called from ten others, which are called in turn, is optimised and written some hundred times. Here a function
that only compiled code calls stops before that: `EntryCompiler` links, optimises and writes all that an entry
reaches, once. It takes a third of the time. The pipelines use `numba.core`, for the version that
pyproject.toml allows.

No index of the kernel is negative. So the code of `a[i]` does not look whether `i` counts from the end of `a`
(as in Python): a sixth of the replay's time. With NUMBA_BOUNDSCHECK=1 an index that is negative or too
large is an IndexError; the replay then takes a third longer.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from numba import _dynfunc, types  # type: ignore[attr-defined]
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder, _LowerResult
from numba.core.compiler_machinery import PassManager, register_pass
from numba.core.typed_passes import NativeLowering
from numba.np import arrayobj


class InnerLibrary(JITCodeLibrary):
    """The code of one function that only compiled code calls, neither optimised as a whole nor executable."""

    def finalize(self) -> None:
        """Take no more code; what it calls is linked into the entry."""
        self._finalized = True


class EntryLibrary(JITCodeLibrary):
    """The code of a function that Python calls, with that of all functions that it reaches."""

    def finalize(self) -> None:
        """Link all libraries that it reaches, optimise them together, and make them executable.

        A function is linked only if the code before it calls it: each comes after all that call it.
        """
        self._linking_libraries = list_callers_first(self._linking_libraries)
        super().finalize()

    def _verify_declare_only_symbols(self) -> None:
        """Raise AssertionError for a compiled function without code: a call of it would end the process."""
        for function in self._final_module.functions:
            if function.is_declaration and function.name.startswith("_ZN"):
                raise AssertionError(f"{self.name}: {function.name} was not linked.")


def list_callers_first(libraries: Sequence[JITCodeLibrary]) -> list[JITCodeLibrary]:
    """Return the libraries and all that they reach, each after those that call it; none calls itself."""
    callees_first = dict[JITCodeLibrary, None]()

    def visit(library: JITCodeLibrary) -> None:
        if library not in callees_first:
            if isinstance(library, InnerLibrary):
                for called in library._linking_libraries:
                    visit(called)
            callees_first[library] = None

    for library in libraries:
        visit(library)
    return list(reversed(callees_first))


@contextmanager
def without_negative_indices() -> Iterator[None]:
    """Lower `a[i]` without the case that `i` is negative. Numba lowers one function at a time."""

    def take_index_as_it_is(context: Any, builder: Any, index_type: Any, index: Any, size: Any) -> Any:
        return context.cast(builder, index, index_type, types.intp if index_type.signed else types.uintp)

    of_numba = arrayobj.fix_integer_index
    arrayobj.fix_integer_index = take_index_as_it_is
    try:
        yield
    finally:
        arrayobj.fix_integer_index = of_numba


@register_pass(mutates_CFG=True, analysis_only=False)
class InnerLowering(NativeLowering):
    """Lower a function that only compiled code calls."""

    _name = "inner_lowering"

    def run_pass(self, state: Any) -> bool:
        """Lower it into an InnerLibrary, for the functions that call it."""
        state.library = InnerLibrary(state.targetctx.codegen(), state.func_id.func_qualname)
        state.flags.no_compile = True
        with without_negative_indices():
            super().run_pass(state)
        lowered, name = state["cr"], state.func_id.func_qualname
        # Numba finds a function by its entry point. This one has no address.
        entry = _dynfunc.make_function(
            lowered.fndesc.lookup_module(), name, "", 0, lowered.env, (state.library,)
        )
        state.targetctx.insert_user_function(entry, lowered.fndesc, [state.library])
        state["cr"] = _LowerResult(lowered.fndesc, lowered.call_helper, cfunc=entry, env=lowered.env)
        return True


@register_pass(mutates_CFG=True, analysis_only=False)
class EntryLowering(NativeLowering):
    """Lower a function that Python calls."""

    _name = "entry_lowering"

    def run_pass(self, state: Any) -> bool:
        """Lower it into an EntryLibrary, whose machine code can be kept on disk."""
        state.library = EntryLibrary(state.targetctx.codegen(), state.func_id.func_qualname)
        state.library.enable_object_caching()
        with without_negative_indices():
            return bool(super().run_pass(state))


def _pipeline(compiler: CompilerBase, lowering: type[NativeLowering]) -> list[PassManager]:
    """Return Numba's pipeline for compiled code with another last step."""
    passes = DefaultPassBuilder.define_nopython_pipeline(compiler.state)
    place = [one for one, _ in passes.passes].index(NativeLowering)
    passes.passes[place] = (lowering, "native lowering")
    return [passes]


class InnerCompiler(CompilerBase):
    """Compiles a function that only compiled code calls."""

    def define_pipelines(self) -> list[PassManager]:
        """Return its one pipeline."""
        return _pipeline(self, InnerLowering)


class EntryCompiler(CompilerBase):
    """Compiles a function that Python calls."""

    def define_pipelines(self) -> list[PassManager]:
        """Return its one pipeline."""
        return _pipeline(self, EntryLowering)
