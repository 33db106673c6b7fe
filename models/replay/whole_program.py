"""Compile the kernel as one program: its functions become machine code once, with the one that Python calls.

Numba makes machine code of every function, together with all functions that it calls. A function that is
called from ten others, which are called in turn, is optimised and written some hundred times. Here a function
that only compiled code calls stops before that: `EntryCompiler` links, optimises and writes all that an entry
reaches, once. It takes half the time. The pipelines use `numba.core`, for the version that pyproject.toml
allows.
"""

from typing import Any

from numba import _dynfunc  # type: ignore[attr-defined]
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder, _LowerResult
from numba.core.compiler_machinery import PassManager, register_pass
from numba.core.typed_passes import NativeLowering


class InnerLibrary(JITCodeLibrary):
    """The code of one function that only compiled code calls, neither optimised as a whole nor executable."""

    def finalize(self) -> None:
        """Take no more code; what it calls is linked into the entry."""
        self._finalized = True


class EntryLibrary(JITCodeLibrary):
    """The code of a function that Python calls, with that of all functions that it reaches."""

    def finalize(self) -> None:
        """Link all libraries that it reaches, optimise them together, and make them executable."""
        reached, waiting = dict.fromkeys(self._linking_libraries), [*self._linking_libraries]
        while waiting:
            library = waiting.pop()
            if isinstance(library, InnerLibrary):
                new = [called for called in library._linking_libraries if called not in reached]
                reached |= dict.fromkeys(new)
                waiting += new
        self._linking_libraries = [*reached]
        super().finalize()


@register_pass(mutates_CFG=True, analysis_only=False)
class InnerLowering(NativeLowering):
    """Lower a function that only compiled code calls."""

    _name = "inner_lowering"

    def run_pass(self, state: Any) -> bool:
        """Lower it into an InnerLibrary, for the functions that call it."""
        state.library = InnerLibrary(state.targetctx.codegen(), state.func_id.func_qualname)
        state.flags.no_compile = True
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
