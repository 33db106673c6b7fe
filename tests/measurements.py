"""Published measurements, read from the shared data folder, in the form that the latency models take."""

import dataclasses
import tarfile
from pathlib import Path

import numpy as np
import pandas as pd
from grid_fit import Measured
from grid_fit import step_s as profile_step_s
from kernel_fit import KNOTS, Timed, TimedDecode, fit_decode, fit_prefill, fit_products, short
from roofline_fit import Closed, works_of

from fleetcast.models.aliases import Floats
from fleetcast.models.latency.composed_profiles import PASS_S, compose_profile
from fleetcast.models.latency.profile_tables import profile_prefill_s
from fleetcast.models.latency.roofline import (
    RooflineWork,
    roofline_decode_s,
    roofline_kv_token_s,
    roofline_prefill_s,
)
from fleetcast.models.world.catalogue import Catalogue
from fleetcast.models.world.catalogue_entries import Efficiency, Gpu, LatencyProfile, Llm
from fleetcast.models.world.kernel_times import KernelTimes, MatrixProductTimes
from fleetcast.models.world.toml_dataclasses import build_dataclass, read_toml

PROFILES = Path(__file__).parents[2] / "shared" / "data" / "profiles"
SPLITWISE = PROFILES / "splitwise_perf_model.csv"
SILICON = PROFILES / "aiconfigurator_silicon_sample.csv.gz"
STATIC = PROFILES / "argonne_llm_inference_bench_All_results.csv.gz"
INFERSIM = PROFILES / "infersim_h20_h800_bench.tar.gz"
KERNELS = PROFILES.parent / "kernels"
KERNEL_PEAK_TFLOPS = {  # dense bf16, NVIDIA's data sheets
    "a100_sxm": 312.0,
    "h100_sxm": 989.5,
    "h200_sxm": 989.5,
    "b200_sxm": 2250.0,
    "l40s": 362.0,
    "rtx_pro_6000_server": 503.8,
}
SILICON_GPUS = {"h100_sxm": "h100-80gb", "h200_sxm": "h200-141gb", "b200_sxm": "b200-180gb"}
WEIGHT_BITS = {"bf16": 16, "fp8": 8, "fp4": 4}
KV_MEMORY_SHARE = 0.9
# Argonne's A100 has 40 GB: Llama-2-7b takes twice as long from the batch on whose cache exceeds that.
A100_40GB = {"memory_gib": 40.0, "bandwidth_tb_per_s": 1.555}


def llms() -> dict[str, Llm]:
    """Return the architectures of the measured llms."""
    path = Path(__file__).with_name("measured_llms.toml")
    return {
        name: build_dataclass(Llm, value, f"{path.name} [{name}]") for name, value in read_toml(path).items()
    }


def splitwise_points(profile: LatencyProfile) -> Measured:
    """Return the grid of one deployment. Batches of 64 on two GPUs ran out of memory and are incomplete."""
    rows = pd.read_csv(SPLITWISE).query(
        "model == @profile.llm and hardware == @profile.gpu and tensor_parallel == @profile.tensor_parallel"
        " and token_size == 128 and (tensor_parallel > 2 or batch_size < 64)"
    )
    return Measured(
        *(rows[name].to_numpy(float) for name in ("prompt_size", "token_size", "batch_size")),
        *(rows[name].to_numpy(float) / 1e3 for name in ("prompt_time", "token_time")),
    )


def silicon(catalogue: Catalogue) -> tuple[pd.DataFrame, Closed]:
    """Aggregated serving at constant concurrency: the rows (llm, gpu, backend), and what was measured.

    Kept are llms with ordinary attention, on GPUs of the catalogue, without data-parallel attention or
    pipelines, and only where everyone's cache fits.
    """
    rows = pd.read_csv(SILICON)
    rows["llm"] = rows["model_path"].str.split("/").str[-1].str.replace(r"-Instruct|-FP8", "", regex=True)
    rows["gpu"] = rows["system"].map(SILICON_GPUS)
    bits = rows["precision"].map(WEIGHT_BITS).fillna(16).astype(int)
    rows["weight_bits"] = bits.where(rows["llm"] != "gpt-oss-120b", 4)  # published in 4 bits
    rows["requests"] = rows["silicon_data_source"].str.extract(r"silicon_concurrency=(\d+)")[0].astype(float)
    rows["requests"] = rows["requests"].fillna(rows["batch_size"])
    known = llms()
    rows = rows[(rows["mode"] == "agg") & rows["llm"].isin(known) & rows["gpu"].notna()]
    rows = rows[(rows["pp_size"] == 1) & ~(rows["attention_dp_size"] > 1)]
    rows = rows.dropna(subset=["silicon_ttft_ms", "silicon_tpot_ms"])
    served = [
        (dataclasses.replace(known[llm], weight_bits=bits), catalogue.gpus[gpu], int(tensor_parallel))
        for llm, bits, gpu, tensor_parallel in zip(
            rows["llm"], rows["weight_bits"], rows["gpu"], rows["tp_size"], strict=True
        )
    ]
    rows, works = where_they_fit(rows, served, rows["requests"] * (rows["isl"] + rows["osl"]))
    e2e_s = (rows["silicon_ttft_ms"] + (rows["osl"] - 1) * rows["silicon_tpot_ms"]) / 1e3
    columns = (column.to_numpy(float) for column in (rows["requests"], rows["isl"], rows["osl"], e2e_s))
    return rows, Closed(works, *columns)


def attention_flops_shares() -> dict[str, Floats]:
    """Return, by GPU, the share of peak FLOP/s that prefill attention reaches with 4,096 tokens or more."""
    shares = {}
    for gpu, peak_tflops in KERNEL_PEAK_TFLOPS.items():
        rows = pd.read_parquet(KERNELS / f"{gpu}.context_attention_perf.parquet")
        same = (
            (rows["attn_dtype"] == "bfloat16") & (rows["kv_cache_dtype"] == "bfloat16") & (rows["step"] == 0)
        )
        whole = rows.get("window_size", pd.Series(0, rows.index)) == 0
        rows = rows[
            same & whole & (rows["head_dim"] == 128) & (rows["isl"] >= 4096) & (rows["num_heads"] >= 8)
        ]
        pairs = (
            rows["batch_size"] * rows["isl"].astype(float) ** 2 / 2
        )  # each token attends to those before it
        flops = 4 * pairs * rows["num_heads"] * rows["head_dim"]
        shares[gpu] = (flops / (rows["latency"] * 1e-3) / (peak_tflops * 1e12)).to_numpy()
    return shares


def where_they_fit(
    rows: pd.DataFrame, served: list[tuple[Llm, Gpu, int]], kv_tokens: pd.Series
) -> tuple[pd.DataFrame, RooflineWork]:
    """Return the rows whose cached tokens fit in memory next to the weights, and their work."""
    fits = np.array([kv_room(*deployment) for deployment in served]) > kv_tokens
    kept = [deployment for deployment, fit in zip(served, fits, strict=True) if fit]
    return rows[fits].reset_index(drop=True), works_of(kept)


def kv_room(llm: Llm, gpu: Gpu, tensor_parallel: int) -> float:
    """Return the KV tokens that fit in memory next to the weights."""
    room_bytes = tensor_parallel * gpu.memory_gib * 2**30 * KV_MEMORY_SHARE - llm.weight_bytes
    return room_bytes / llm.kv_bytes_per_token


def static_batches(catalogue: Catalogue) -> tuple[pd.DataFrame, Closed]:
    """Return whole batches, prefilled together and decoded to their end: rows and measurements.

    16 bits, outputs as long as prompts, only where the whole batch's cache fits. No coefficient was
    fitted to them.
    """
    rows = pd.read_csv(STATIC)
    rows["llm"] = rows["Model"].str.split("/").str[-1]
    rows["gpu"] = rows["Hardware"].map({"Nvidia A100 GPU": "a100-40gb", "Nvidia H100 GPU": "h100-80gb"})
    numbers = {"Num of Hardware": "tp_size", "Input Output Length": "tokens", "Batch Size": "requests"}
    for column, name in (*numbers.items(), ("Latency", "e2e_s")):
        rows[name] = pd.to_numeric(rows[column], errors="coerce")
    known = llms()
    rows = rows[rows["Framework"].isin(["TensorRT-LLM", "vLLM"]) & rows["llm"].isin(known)]
    rows = rows.dropna(subset=["gpu", "e2e_s"]).query("e2e_s > 0")
    gpus = {**catalogue.gpus, "a100-40gb": dataclasses.replace(catalogue.gpus["a100-80gb"], **A100_40GB)}
    served = [
        (known[llm], gpus[gpu], int(tensor_parallel))
        for llm, gpu, tensor_parallel in zip(rows["llm"], rows["gpu"], rows["tp_size"], strict=True)
    ]
    rows, works = where_they_fit(rows, served, rows["requests"] * 2 * rows["tokens"])
    columns = (rows[name].to_numpy(float) for name in ("requests", "tokens", "tokens", "e2e_s"))
    return rows, Closed(works, *columns)


def static_e2e_s(closed: Closed, efficiency: Efficiency) -> np.ndarray:
    """Return the roofline's seconds of a whole batch: one prefill of all prompts, then every step."""
    work, batch = closed.work, closed.requests
    cache = batch * (closed.input_tokens + closed.output_tokens / 2)
    step_s = roofline_decode_s(work, batch, efficiency) + roofline_kv_token_s(work, efficiency) * cache
    return (
        roofline_prefill_s(work, batch * closed.input_tokens, efficiency)
        + (closed.output_tokens - 1) * step_s
    )


# --- kernels ---------------------------------------------------------------------------------------------

KERNEL_GPUS = {  # tables of single kernels: GPU type, bytes of its last-level cache (NVIDIA papers)
    "a100_sxm": ("a100-80gb", 40e6),
    "h100_sxm": ("h100-80gb", 50e6),
    "h200_sxm": ("h200-141gb", 50e6),
    "b200_sxm": ("b200-180gb", 126e6),
    "l40s": ("l40s-48gb", 96e6),
    "rtx_pro_6000_server": ("rtxpro6000-96gb", 128e6),
}
KERNEL_TYPES = {16: "bfloat16", 8: "fp8"}
LEAST_SIDE = 1024  # smallest side of a product: no layer of an llm is narrower
GROUPS = (4, 8)  # query heads per KV head
KV_BYTES = 4  # of a key and a value


def kernels_of(name: str) -> KernelTimes:
    """Return the fitted kernels of a GPU type."""
    _, cached_bytes = KERNEL_GPUS[name]
    rows = pd.read_parquet(KERNELS / f"{name}.gemm_perf.parquet")
    rows = rows[(rows["n"] >= LEAST_SIDE) & (rows["k"] >= LEAST_SIDE)]
    timed = {
        bits: Timed(*(own[column].to_numpy(float) for column in "mnk"), own["latency"].to_numpy() / 1e3)
        for bits, kind in KERNEL_TYPES.items()
        if len(own := rows[rows["gemm_dtype"] == kind])
    }
    decode, prefill = (attention(name, phase) for phase in ("generation", "context"))
    tokens = decode["batch_size"] * (decode["isl"] + decode["step"])
    read = tokens * decode["num_key_value_heads"] * decode["head_dim"] * KV_BYTES
    values = prefill["batch_size"] * prefill["isl"] * prefill["num_heads"] * prefill["head_dim"]
    return KernelTimes(
        {str(bits): fit_products(timed[16], own, bits, cached_bytes) for bits, own in timed.items()},
        *fit_decode(
            TimedDecode(*(c.to_numpy(float) for c in (decode["batch_size"], read, decode["latency"] / 1e3))),
            cached_bytes,
        ),
        *fit_prefill(
            *(c.to_numpy(float) for c in (values, values * prefill["isl"] / 2, prefill["latency"] / 1e3))
        ),
        f"kernels of {rows['device'].iloc[0]} under vLLM {rows['version'].iloc[0].split('.dev')[0]}, "
        "ai-dynamo/aiconfigurator (Apache-2.0)",
    )


# --- kernels of which a part was timed ---------------------------------------------------------------------

PCIE_SHARE = 1.935 / 2.039  # memory of an A800 on PCIe over that of an A100 on SXM, NVIDIA's data sheets
CACHED_BYTES = {"h20": 60e6, "h800": 50e6}
FEWEST_TOKENS = 16  # of a product there, but for two sizes
IN_PART = "alibaba/InferSim (Apache-2.0)"


def kernels_in_part() -> dict[str, KernelTimes]:
    """Return kernels of partly timed GPU types: their own times, else other GPUs' times."""
    h100, a100 = kernels_of("h100_sxm"), kernels_of("a100_sxm")
    return {
        "h800-80gb": dataclasses.replace(
            h100,
            **decode_in_part("h800"),
            source=f"attention in decode of NVIDIA H800, {IN_PART}; {h100.source}",
            lacks="all but attention in decode: those of H100, whose compute and memory it has",
        ),
        "a800-80gb-pcie": dataclasses.replace(
            a100,
            products={bits: read_slower(products) for bits, products in a100.products.items()},
            decode_byte_s=short(a100.decode_byte_s / PCIE_SHARE),
            source=a100.source,
            lacks="all: those of A100-SXM, memory read 5 % slower; less power is not counted",
        ),
        "h20-96gb": h20_kernels(),
    }


def read_slower(products: MatrixProductTimes) -> MatrixProductTimes:
    """Return products whose weights are read 5 % slower; compute-bound products stay as they are."""
    least_s = products.weight_s[0] / PCIE_SHARE
    return dataclasses.replace(products, weight_s=tuple(short(max(s, least_s)) for s in products.weight_s))


def h20_kernels() -> KernelTimes:
    """H20: products in 8 bits, attention in 16."""
    rows = infersim("gemm/h20/data").drop_duplicates(["m", "k", "n"])
    rows = rows[(rows["n"] >= LEAST_SIDE) & (rows["k"] >= LEAST_SIDE)]
    timed = Timed(*(rows[name].to_numpy(float) for name in "mnk"), rows["latency_us"].to_numpy() / 1e6)
    knots = tuple(n for n in KNOTS if n >= FEWEST_TOKENS and n in timed.tokens)
    of_8_bits = fit_products(timed, timed, 16, 0.0, knots)  # a launch of its own: nothing was quantised
    of_16_bits = dataclasses.replace(of_8_bits, weight_s=tuple(short(2 * s) for s in of_8_bits.weight_s))
    prefill = pd.concat(
        infersim(f"mha/prefill/h20/{shape}").assign(heads=int(shape.split("-")[0]))
        for shape in ("32-8-128", "32-4-128", "64-8-128")
    )
    values = (prefill["seq_len"] * prefill["heads"] * 128).to_numpy(float)
    pairs = values * prefill["seq_len"].to_numpy() / 2
    of_prefill = fit_prefill(values, pairs, prefill["latency_us"].to_numpy() / 1e6)
    return KernelTimes(
        {"16": of_16_bits, "8": of_8_bits},
        **decode_in_part("h20"),
        **dict(zip(("prefill_s", "prefill_value_s", "prefill_pair_s"), of_prefill, strict=True)),
        source=f"kernels of NVIDIA H20, {IN_PART}",
        lacks="products of 16 bits: twice the seconds of 8 bits; whole runs to check against",
    )


def decode_in_part(gpu: str) -> dict[str, float]:
    """Return decode attention times with a 16-bit cache, for the same groups of heads as elsewhere."""
    rows = pd.concat(
        infersim(f"mha/decode/{gpu}/{shape}").assign(kept=int(shape.split("-")[1]))
        for shape in ("32-8-128", "32-4-128", "16-2-128")
    )
    rows = rows[(rows["dtype"] == "bf16") & (rows["kv_dtype"] == "bf16")]
    read = rows["batch_size"] * rows["kv_len"] * rows["kept"] * 128 * KV_BYTES
    columns = (rows["batch_size"], read, rows["latency_us"] / 1e6)
    fitted = fit_decode(TimedDecode(*(column.to_numpy(float) for column in columns)), CACHED_BYTES[gpu])
    return dict(zip(("decode_s", "decode_request_s", "decode_byte_s"), fitted, strict=True))


def infersim(name: str) -> pd.DataFrame:
    """Return one kernel table of H20 or H800."""
    with tarfile.open(INFERSIM) as files:
        found = files.extractfile(f"bench_data/{name}.csv")
        assert found is not None
        return pd.read_csv(found)


def attention(name: str, phase: str) -> pd.DataFrame:
    """Return the times of attention kernels with a 16-bit cache, without windows."""
    rows = pd.read_parquet(KERNELS / f"{name}.{phase}_attention_perf.parquet")
    group = rows["num_heads"] / rows["num_key_value_heads"]
    is_whole = rows.get("window_size", pd.Series(0, rows.index)) == 0
    of_16_bits = (rows["kv_cache_dtype"] == "bfloat16") & (rows["head_dim"] == 128)
    kept = is_whole & of_16_bits & group.between(*GROUPS)
    return rows[kept & ((rows["num_heads"] >= 8) | (phase == "generation"))]


def tpot_runs(catalogue: Catalogue) -> pd.DataFrame:
    """Return runs of dense llms, 16 and 8 bits, constant concurrency: measured and composed TPOT.

    A pass with a prompt takes the prompt's time on top of the others' step. Between its arrival and its last
    token a request meets the prompts of all others once; it does not meet the prompts that it had waited for
    by its first token, which its measured TTFT gives.
    """
    rows, _ = silicon(catalogue)
    names = {"Llama-3.1-8B": "llama3.1-8b", "Llama-3.1-70B": "llama3.1-70b", "Qwen3-32B": "qwen3-32b"}
    rows = rows[rows["llm"].isin(names) & (rows["weight_bits"] >= 8)].reset_index(drop=True)
    predicted = []
    names_of = ("llm", "gpu", "weight_bits", "tp_size", "requests", "isl", "osl", "silicon_ttft_ms")
    for llm, gpu, bits, tp, c, isl, osl, ttft_ms in zip(*(rows[name] for name in names_of), strict=True):
        served = dataclasses.replace(catalogue.llms[names[llm]], weight_bits=int(bits))
        own = dataclasses.replace(catalogue, llms={names[llm]: served})
        profile = compose_profile(own, names[llm], gpu, int(tp))
        step = float(profile_step_s(profile, c, c * (isl + osl / 2)))
        prompt = float(profile_prefill_s(profile, isl)) - PASS_S
        predicted.append(step + max(0.0, c * prompt - ttft_ms / 1e3) / (osl - 1))
    return rows.assign(tpot_s=rows["silicon_tpot_ms"] / 1e3, predicted_s=predicted)
