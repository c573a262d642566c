"""Memory of published runs: estimates of other tools beside the measured values.

`python -m benchmarks.other_tools --llm-analysis PYTHON --megatron CHECKOUT` prints the table of
docs/other-tools.md. PYTHON is an interpreter with llm-analysis, in an environment of its own (`pip
install llm-analysis` brings an old transformers); CHECKOUT is one of Megatron-LM. DeepSpeed's
functions are those that are installed.

Rows are those of `benchmarks.accuracy`: published runs whose peak and recomputation are known. A
tool is asked about the runs that it models. What it leaves out by design, the CUDA context with
NCCL and the allocator's fragmentation, is added as dsgen counts it, where the measured figure has
it.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean, median
from types import SimpleNamespace
from typing import Any

from benchmarks.measured import Run, runs
from benchmarks.pairs import Pair, memory_pairs
from dsgen.catalog.layers.experts import Experts
from dsgen.catalog.layers.latent import Latent
from dsgen.estimate.layout import Offload, Recompute
from dsgen.estimate.memory import memory
from dsgen.estimate.model_size import parameter_count
from dsgen.estimate.stages import vocabulary_rows
from dsgen.units import GIB

WORKER = Path(__file__).with_name("llm_analysis_worker.py")
MEGATRON = "megatron/training/theoretical_memory_usage.py"
#: Bytes of a run as a tool estimates them, allocator and context aside; `None` where it doesn't
#: model the run.
Tool = Callable[[Run], float | None]


def deepspeed_states(run: Run) -> float | None:
    """`estimate_zero2_model_states_mem_needs` and `estimate_zero3_...`: weights, gradients and
    optimizer states.
    """
    if run.layout.zero_stage < 2 or run.layout.tensor * run.layout.pipeline > 1:
        return None
    from deepspeed.runtime.zero.stage3 import estimate_zero3_model_states_mem_needs
    from deepspeed.runtime.zero.stage_1_and_2 import estimate_zero2_model_states_mem_needs

    layout, per_node = run.layout, run.job.cluster.accelerators_per_node
    parts: dict[str, Any] = {
        "num_gpus_per_node": min(per_node, layout.world),
        "num_nodes": max(layout.world // per_node, 1),
        "cpu_offload": layout.offload != Offload.NONE,
    }
    total = parameter_count(run.job.model)
    if layout.zero_stage == 2:
        return float(estimate_zero2_model_states_mem_needs(total, **parts)[1])
    offload = layout.offload == Offload.OPTIMIZER_AND_PARAMETERS
    largest = run.job.model.vocab * run.job.model.hidden
    return float(
        estimate_zero3_model_states_mem_needs(total, largest, cpu_offload_params=offload, **parts)[
            1
        ]
    )


def megatron_report(checkout: Path) -> Tool:
    """Megatron-LM's `--report-theoretical-memory`: weights, optimizer, and activations where it has
    a formula.

    It takes its formula for sequence parallelism with selective recomputation only; here also for
    flash attention, which stores as little.
    """
    source = re.sub(
        r"^from \.utils .*",
        "",
        (checkout / MEGATRON).read_text(encoding="utf-8"),
        flags=re.MULTILINE,
    )
    found: dict[str, Any] = {}
    exec(compile(source, MEGATRON, "exec"), found)

    def estimate(run: Run) -> float | None:
        if not run.job.engine.has_parallel_layers or run.layout.recompute == Recompute.FULL:
            return None
        arguments = _megatron_arguments(run)
        kind = "" if run.layout.sequence_parallel or run.layout.tensor == 1 else "_without_sp"
        activations = found[f"compute_activation_memory{kind}"](
            arguments, run.layout.gradient_accumulation
        )
        return float(found["compute_weight_and_optimizer_memory"](arguments) + activations)

    return estimate


def _megatron_arguments(run: Run) -> SimpleNamespace:
    model, layout = run.job.model, run.layout
    first, routed, latent = model.dense_layers, model.part(Experts), model.part(Latent)
    return SimpleNamespace(
        kv_channels=model.head_dim,
        num_attention_heads=model.heads,
        hidden_size=model.hidden,
        group_query_attention=model.kv_heads != model.heads and latent is None,
        num_query_groups=model.kv_heads,
        num_experts=model.experts or None,
        moe_router_topk=model.feed_forward.per_token,
        moe_latent_size=None,
        moe_shared_expert_gate=routed is not None and routed.shared_gate,
        expert_model_parallel_size=layout.expert,
        expert_tensor_parallel_size=layout.expert_tensor,
        add_bias_linear=model.feed_forward.bias,
        world_size=layout.world,
        swiglu=model.feed_forward.gated,
        moe_shared_expert_intermediate_size=(routed and routed.width) or None,
        moe_layer_freq=[int(layer >= first) for layer in range(model.layers)],
        moe_ffn_hidden_size=model.moe_ffn,
        num_layers=model.layers,
        mtp_num_layers=None,
        normalization="RMSNorm" if model.norm.kind == "rmsnorm" else "LayerNorm",
        multi_latent_attention=latent is not None,
        q_lora_rank=(latent and latent.q_lora_rank) or None,
        kv_lora_rank=latent.kv_lora_rank if latent else 0,
        qk_head_dim=latent.qk_nope_head_dim if latent else 0,
        qk_pos_emb_head_dim=latent.qk_rope_head_dim if latent else 0,
        v_head_dim=latent.v_head_dim if latent else 0,
        ffn_hidden_size=model.ffn,
        padded_vocab_size=int(vocabulary_rows(run.job, layout)) * layout.tensor,
        untie_embeddings_and_output_weights=not model.tied_embeddings,
        pipeline_model_parallel_size=layout.pipeline,
        virtual_pipeline_model_parallel_size=layout.virtual_pipeline
        if layout.virtual_pipeline > 1
        else None,
        tensor_model_parallel_size=layout.tensor,
        data_parallel_size=layout.data * layout.context,
        use_distributed_optimizer=layout.zero_stage >= 1,
        seq_length=run.job.training.sequence_length // layout.context,
        micro_batch_size=layout.micro_batch,
    )


def llm_analysis(python: str, rows: Sequence[Run]) -> Tool:
    """llm-analysis: weights, gradients, optimizer and activations; asked once for all runs without
    latent attention.
    """
    asked = [
        run for run in rows if not run.job.model.part(Latent) and run.layout.offload == Offload.NONE
    ]
    text = json.dumps([_description(run) for run in asked])
    done = subprocess.run(
        [python, str(WORKER)], input=text, capture_output=True, text=True, check=True
    )
    answers = dict(zip((run.id for run in asked), json.loads(done.stdout), strict=True))
    return lambda run: answers.get(run.id)


def _description(run: Run) -> Mapping[str, Any]:
    model, layout = run.job.model, run.layout
    return {
        "model": {
            "name": model.name,
            "num_layers": model.layers,
            "n_head": model.heads,
            "hidden_dim": model.hidden,
            "vocab_size": model.vocab,
            "max_seq_len": model.max_positions,
            "num_key_value_heads": model.kv_heads,
            "ffn_embed_dim": model.moe_ffn or model.ffn,
            "expansion_ratio": (model.moe_ffn or model.ffn) / model.hidden,
            "moe_num_experts": model.experts or 1,
            "moe_top_k": model.experts_per_token or 1,
        },
        "parallelism": {
            "tp_size": layout.tensor,
            "pp_size": layout.pipeline,
            "dp_size": layout.data,
            "ep_size": layout.expert,
            "sp_size": layout.tensor if layout.sequence_parallel else 1,
        },
        "training": {
            "batch_size_per_gpu": layout.micro_batch,
            "gradient_accumulation_steps": layout.gradient_accumulation,
            "seq_len": run.job.training.sequence_length // layout.context,
            "flash_attn": run.job.training.attention == "flash",
            "softmax_dropout": model.attention_dropout > 0,
            "mlp_gated_linear_units": model.stack.kinds[0].feed_forward.gated,
        },
        "recompute": Recompute(layout.recompute).name,
        "zero": int(layout.zero_stage),
    }


def compared(rows: Sequence[Run], tool: Tool) -> Iterator[tuple[Pair, Pair]]:
    """For each run that the tool models: its estimate and ours, beside what was measured."""
    for ours in memory_pairs(rows):
        estimated = tool(ours.run)
        if estimated is not None:
            ledger = memory(ours.run.job, ours.run.layout)
            besides = getattr(ledger, f"{ours.run.peak_memory_kind}_bytes") - ledger.allocated_bytes
            yield Pair(run=ours.run, estimated=estimated + besides, measured=ours.measured), ours


def table(tools: Mapping[str, Tool], rows: Sequence[Run]) -> Iterator[str]:
    """A line for each tool and source of runs."""
    yield "| tool | runs of | n | mean error | median | bias | dsgen, same runs |"
    yield "|---|---|---|---|---|---|---|"
    for name, tool in tools.items():
        found = list(compared(rows, tool))
        for source in sorted({theirs.run.source for theirs, _ in found}):
            yield _line(name, source, [pair for pair in found if pair[0].run.source == source])
        yield _line(name, "**all**", found)


def _line(name: str, source: str, pairs: Sequence[tuple[Pair, Pair]]) -> str:
    errors = [theirs.error for theirs, _ in pairs]
    sizes = [abs(error) for error in errors]
    ours = fmean(abs(pair.error) for _, pair in pairs)
    figures = (
        f"{fmean(sizes):.0%}",
        f"{median(sizes):.0%}",
        f"{fmean(errors):+.0%}",
        f"{ours:.1%}",
    )
    return f"| {name} | {source} | {len(pairs)} | {' | '.join(figures)} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--llm-analysis", metavar="PYTHON")
    parser.add_argument("--megatron", metavar="CHECKOUT", type=Path)
    parser.add_argument("--rows", action="store_true", help="print every run")
    asked = parser.parse_args()
    rows = list(runs())
    tools: dict[str, Tool] = {"DeepSpeed": deepspeed_states}
    if asked.megatron:
        tools["Megatron-LM"] = megatron_report(asked.megatron)
    if asked.llm_analysis:
        tools["llm-analysis"] = llm_analysis(
            asked.llm_analysis, [pair.run for pair in memory_pairs(rows)]
        )
    print("\n".join(table(tools, rows)))
    for name, tool in tools.items() if asked.rows else ():
        for theirs, ours in compared(rows, tool):
            sizes = (theirs.estimated / GIB, ours.estimated / GIB, ours.measured / GIB)
            print(name, theirs.run.id, *(f"{size:.1f}" for size in sizes))


if __name__ == "__main__":
    main()
