"""What measured runs add to the profiles of aiconfigurator-core (data/catalogue/engine.toml).

    prefill_s[n] += slower(n) + step_s(tp)        step_s(tp)  = step_doubling_s * log2(tp), dense llms on vLLM
    f[B]         += slower(B) + step_s(tp)        slower(n)   = max(0, link(n) - between(n)), on PCIe only
    f[B]          = min(f[B], mixture_most_over_roofline * roofline f[B])      mixtures only

between(n) is the time that the package counts for the exchange between the GPUs of an instance, measured on
its servers. link(n) is the time of the all-reduces over the catalogue's peer_gb_per_s (roofline.py): on other
servers PCIe may go through the host's memory. The limit is for kernels of experts that engines do not run:
those of MiniMax-M2.5 in 8 bits on B200 take four times as long as whole steps that were measured under vLLM.
`python tests/bench/wall_fit.py` fits the file and prints the errors of llms left out. A factor by GPU type
made the errors of llms left out larger, so there is none.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from fleetcast.models.aliases import Floats
from fleetcast.models.latency.roofline import between_gpus_s, deployment_work, roofline_decode_s
from fleetcast.models.world.catalogue import Catalogue
from fleetcast.models.world.catalogue_entries import VLLM, LatencyProfile


def correct_profile(
    catalogue: Catalogue, profile: LatencyProfile, between_s: Sequence[npt.ArrayLike]
) -> LatencyProfile:
    """Return a profile of aiconfigurator-core with the correction.

    `between_s`: seconds between GPUs that it contains, at its prefill and decode knots, shape (K,) each.
    """
    engine, arch = catalogue.engine, catalogue.llms[profile.llm]
    is_dense = arch.experts is None
    has_steps = is_dense and arch.backend == VLLM
    step_s = engine.step_doubling_s * np.log2(profile.tensor_parallel) if has_steps else 0.0
    knots = ((profile.prefill_tokens, profile.prefill_s), (profile.decode_batch, profile.decode_s))
    prefill_s, decode_s = (
        np.array(seconds) + step_s + slower_link_s(catalogue, profile, np.array(tokens), np.array(within_s))
        for (tokens, seconds), within_s in zip(knots, between_s, strict=True)
    )
    corrected = replace(
        profile,
        prefill_s=tuple(np.maximum.accumulate(prefill_s).round(7).tolist()),
        decode_s=tuple(np.maximum.accumulate(decode_s).round(7).tolist()),
    )
    return corrected if is_dense else limit_decode(catalogue, corrected)


def limit_decode(catalogue: Catalogue, profile: LatencyProfile) -> LatencyProfile:
    """Return the profile of a mixture with no step longer than the roofline's times its limit.

    The roofline knows no data-parallel ranks, and was fitted to llms whose layers are all alike. Profiles of
    others stay as they are.
    """
    arch = catalogue.llms[profile.llm]
    if arch.expert_ranks > 1 or arch.cache_layers:
        return profile
    work = deployment_work(arch, catalogue.gpus[profile.gpu], profile.tensor_parallel)
    roofline_s = roofline_decode_s(work, profile.decode_batch, catalogue.efficiency)
    most_s = catalogue.engine.mixture_most_over_roofline * roofline_s
    return replace(profile, decode_s=tuple(np.minimum(profile.decode_s, most_s).round(7).tolist()))


def slower_link_s(catalogue: Catalogue, profile: LatencyProfile, tokens: Floats, within_s: Floats) -> Floats:
    """Return the seconds that the catalogue's link takes longer than a pass contains, shape of `tokens`."""
    gpu = catalogue.gpus[profile.gpu]
    is_pcie = gpu.peer_gb_per_s is not None and gpu.peer_gb_per_s <= catalogue.engine.pcie_gb_per_s
    if profile.tensor_parallel == 1 or not is_pcie:
        return np.zeros(tokens.shape)
    work = deployment_work(catalogue.llms[profile.llm], gpu, profile.tensor_parallel)
    return np.maximum(between_gpus_s(work, tokens, catalogue.efficiency) - within_s, 0.0)
