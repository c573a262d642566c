"""Reading of a published row's memory: its unit and kind, and the choices of its program that
memory depends on.
"""

from __future__ import annotations

from typing import Any

from dsgen.units import GIB, MIB

Row = dict[str, str]

#: DeepSpeed's default, which these runs' configurations leave alone (runtime/zero/config.py);
#: elements.
DEEPSPEED_BUCKET = 500_000_000
#: Programs whose states are not what any of ours holds: Galvatron's are those of another precision
#: than it states, torchtune's weights and moments are 16 bit throughout.
OWN_STATES = ("galvatron", "torchtune")

#: Shapes that a row leaves to the model's name, in the table's columns, from the model's own
#: config.json (moonshotai/Moonlight-16B-A3B). `q_rank` is the rank of MLA's queries, which this
#: model projects whole.
SHAPES: dict[str, Row] = {
    "Moonlight-16B-A3B": {
        "hidden": "2048",
        "ffn_hidden": "11264",
        "moe_ffn_hidden": "1408",
        "shared_experts": "2",
        "dense_layers": "1",
        "heads": "16",
        "mla": "y",
        "q_rank": "0",
        "vocab": "163840",
        "num_experts": "64",
        "moe_topk": "6",
        "tied_embeddings": "n",
    }
}


def with_shape(row: Row) -> Row:
    """The row with what its model's name says."""
    return {**row, **SHAPES.get(row["model_name"], {})}


def choices(row: Row) -> dict[str, Any]:
    """Fields of `Training` that the row's program sets apart from our frameworks' defaults.

    **Source**: ALST's configurations say in their names whether Liger's kernels are on.
    Megatron-Bridge's recipes sum gradients in 16 bit for a precision-aware optimizer, take
    Transformer Engine's loss (recipes/utils, cross_entropy_fusion_impl), and
    Moonlight's keep the moments in 16 bit as well
    (src/megatron/bridge/recipes/moonlight/h100/moonlight_16b.py), with fp8's default recipe of
    Megatron-Bridge, tensorwise (training/mixed_precision.py). InternEvo: 16-bit gradients and
    torch's AdamW (internlm/solver/optimizer/hybrid_zero_optim.py, fsdp_optimizer.py), logits in
    fp32 (NaiveAMPModel). torchtune's rows of quality A are compiled and keep every state in 16 bit
    (README.md). SimuMax's cases whose names end in `cef` take Transformer Engine's loss
    (docs/b200/b200_release_v1.2_summary.json). NVIDIA's runs of MLPerf 5.1 and those of partners
    that ran its code sum gradients in 16 bit (pretrain.py, grad_reduce_in_fp32), capture whole
    iterations (config_common_cg.sh), and gather weights in fp8, tensorwise (config_common.sh), but
    in NVFP4 not (config_common_fp4.sh); 8B takes Transformer Engine's loss (config_common_8b.sh;
    mlcommons/training_results_v5.1 @ 4da2d1cd).
    """
    program = row["framework"].split(" ")[0].lower()
    read: dict[str, Any] = {}
    if "deepspeed" in program:
        read["bucket_elements"] = DEEPSPEED_BUCKET
    if row["source_key"] == "simumax-b200":
        read["cross_entropy"] = "te"
    if row["source_key"] == "mlperf51":
        read |= {"gradient_dtype": "same", "cuda_graphs": "full_iteration"}
        if row["precision"] == "fp8":
            read |= {"fp8_recipe": "tensorwise", "fp8_parameters": True}
        if "llama31_8b" in row["url_or_repo_path"]:
            read["cross_entropy"] = "te"
    if "-liger" in row["url_or_repo_path"]:
        read["kernels"] = "fused"
    if program == "megatron-bridge":
        read |= {"gradient_dtype": "same", "cross_entropy": "te"}
        if row["model_name"].startswith("Moonlight"):
            read |= {"moment_dtype": "bf16", "fp8_recipe": "tensorwise"}
    if program == "torchtune":
        read |= {"kernels": "fused", "moment_dtype": "same"}
    if program == "internevo":
        read |= {"gradient_dtype": "same", "optimizer": "adamw-foreach", "cross_entropy": "unfused"}
    return read


def deepspeed_version(row: Row) -> tuple[int, ...]:
    """DeepSpeed's version: Megatron-DeepSpeed's rows are all of 2021 and 2022."""
    return (0, 6, 0) if row["framework"].startswith("megatron-deepspeed") else (0, 19, 8)


def recompute_known(row: Row) -> bool:
    """Return whether the row says what it recomputed; other modules than the attention's core count
    as nothing.
    """
    return bool(row["recompute"]) and "not stated" not in row["recompute"]


def peak_bytes(row: Row) -> float | None:
    """The peak where we have a ledger for it: no activations on the host, states as in one of our
    frameworks.
    """
    own = row["framework"].split(" ")[0] in OWN_STATES
    if not row["peak_mem_gib"] or "activation" in row["offload"] or own:
        return None
    return float(row["peak_mem_gib"]) * _unit(row)


def _unit(row: Row) -> float:
    """Bytes of the printed unit.

    BigScience's whole "GB" are thousands of nvidia-smi's MiB: its author calls 1,113 MiB 1.1 GB,
    and one run of 80 would have overfilled its card otherwise.
    """
    return 1000 * MIB if row["source_key"].startswith("bigsci") else GIB


def peak_kind(row: Row) -> str:
    """allocated | reserved | device: which of the ledger's totals the figure is."""
    text = row["peak_mem_kind"]
    if "nvidia-smi" in text or "device" in text:
        return "device"
    return "reserved" if "reserved" in text else "allocated"
