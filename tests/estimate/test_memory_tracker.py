"""The ledger of Hugging Face training, part by part, against the allocator's count of the real
models.

On a CPU three things differ from a GPU, and are added to the ledger here: dropout keeps its noise
in the tensor's type instead of a byte's mask; a causal model's SDPA attention keeps a mask of its
own in every layer, repeats keys and values, and keeps four bytes a head for the softmax's sums.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from dsgen.estimate.activations import layer_bytes_per_token
from dsgen.estimate.backward import output_bytes, workspace_bytes
from dsgen.estimate.layout import Layout, Recompute
from dsgen.estimate.memory import memory
from dsgen.job.records import Job
from tests.estimate.tracked import Tracked, track
from tests.jobs import job
from tests.needs import needs_transformers

pytestmark = [pytest.mark.integration, needs_transformers]

SEQUENCE = {"llama": 1024, "qwen3": 1024, "mixtral": 1024, "gpt2": 1024, "bert": 512}
_SHAPE = {
    "hidden_size": 1024,
    "intermediate_size": 2816,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "vocab_size": 4000,
    "max_position_embeddings": 1024,
    "tie_word_embeddings": False,
}
CONFIGS: dict[str, dict[str, Any]] = {
    "llama": {"model_type": "llama", **_SHAPE},
    "qwen3": {"model_type": "qwen3", **_SHAPE, "head_dim": 128},
    "mixtral": {
        "model_type": "mixtral",
        **_SHAPE,
        "num_local_experts": 8,
        "num_experts_per_tok": 2,
    },
    "gpt2": {
        "model_type": "gpt2",
        "n_embd": 1024,
        "n_head": 16,
        "n_positions": 1024,
        "vocab_size": 4000,
    },
    "bert": {
        "model_type": "bert",
        "hidden_size": 1024,
        "intermediate_size": 4096,
        "num_attention_heads": 16,
        "vocab_size": 4000,
        "max_position_embeddings": 512,
    },
}
LAYERS_KEY = {"gpt2": "n_layer"}
#: SDPA with dropout has no fused kernel on a CPU.
NO_ATTENTION_DROPOUT = {"gpt2": {"attn_pdrop": 0.0}, "bert": {"attention_probs_dropout_prob": 0.0}}
MODELS = list(CONFIGS)
KERNELS = ["sdpa", "eager"]
#: Shares by which estimate and count may differ: parts that follow from shapes alone, and peaks.
EXACT, PART, PEAK = 1e-3, 0.03, 0.05


def config(kind: str, layers: int, attention: str) -> dict[str, Any]:
    """A `config.json` with `layers` layers."""
    without = NO_ATTENTION_DROPOUT.get(kind, {}) if attention == "sdpa" else {}
    return {**CONFIGS[kind], **without, LAYERS_KEY.get(kind, "num_hidden_layers"): layers}


@cache
def tracked(
    kind: str, layers: int, attention: str, *, checkpoint: bool = False, dtype: str = "bfloat16"
) -> Tracked:
    """The count, made once."""
    shape = config(kind, layers, attention)
    return track(shape, dtype=dtype, attention=attention, checkpoint=checkpoint, micro_batch=2)


def planned(kind: str, layers: int, attention: str, *, precision: str = "bf16") -> Job:
    """The same training as a job for one GPU."""
    return job(
        framework="huggingface",
        model=config(kind, layers, attention),
        gpus=1,
        training__precision=precision,
        training__sequence_length=SEQUENCE[kind],
        training__attention="flash" if attention == "sdpa" else "unfused",
        training__global_batch=4,
    )


def layout(*, checkpoint: bool = False) -> Layout:
    """One GPU, two micro-batches of two sequences."""
    recompute = Recompute.FULL if checkpoint else Recompute.NONE
    return Layout(data=1, micro_batch=2, gradient_accumulation=2, recompute=recompute)


def tokens(kind: str) -> int:
    """Tokens of a micro-batch."""
    return 2 * SEQUENCE[kind]


def cpu_bytes_per_token(whole: Job, attention: str) -> float:
    """Bytes a token and layer that only a CPU keeps."""
    model, length = whole.model, whole.training.sequence_length
    element = 4 if whole.training.precision == "fp32" else 2
    masks = 2 * model.hidden * (element - 1) * (model.dropout > 0)
    if attention == "eager":
        scores = model.heads * length * (element - 1) * (model.attention_dropout > 0)
        return float(masks + scores)
    # One mask for all sequences of the micro-batch, here two.
    causal = element * length / 2 if model.causal else 0
    repeated = 2 * element * (model.heads - model.kv_heads) * model.head_dim
    return masks + causal + repeated + 4 * model.heads


@pytest.mark.parametrize("kind", ["llama", "gpt2", "bert"])
def test_states(kind: str) -> None:
    """Weights, gradients and AdamW's moments in fp32 are the ledger's to a thousandth."""
    count = tracked(kind, 2, "sdpa", dtype="float32")
    ledger = memory(planned(kind, 2, "sdpa", precision="fp32"), layout())
    # The tracked BERT has neither pooler nor next-sentence head, which pre-training counts.
    missing = 4 * _absent_parameters(kind)
    assert float(ledger.parameters_bytes) - missing == pytest.approx(count.parameters, rel=EXACT)
    assert float(ledger.gradients_bytes) - missing == pytest.approx(count.gradients, rel=EXACT)
    assert float(ledger.optimizer_bytes) - 2 * missing == pytest.approx(count.optimizer, rel=EXACT)


def test_expert_states() -> None:
    """Mixtral's weights and gradients in bf16 are the ledger's to a thousandth (its experts want
    bf16 on a CPU).
    """
    count = tracked("mixtral", 2, "sdpa")
    ledger = memory(planned("mixtral", 2, "sdpa"), layout())
    assert float(ledger.parameters_bytes) == pytest.approx(count.parameters, rel=EXACT)
    assert float(ledger.gradients_bytes) == pytest.approx(count.gradients, rel=EXACT)


def _absent_parameters(kind: str) -> int:
    """Pooler (h² + h) and next-sentence head (2h + 2) of BERT's pre-training model."""
    return 1024**2 + 1024 + 2 * 1024 + 2 if kind == "bert" else 0


@pytest.mark.parametrize("attention", KERNELS)
@pytest.mark.parametrize("kind", MODELS)
def test_activations_of_a_layer(kind: str, attention: str) -> None:
    """What a layer keeps is within 3 % of the count, which is linear in layers."""
    one, three = (tracked(kind, layers, attention).kept for layers in (1, 3))
    whole = planned(kind, 2, attention)
    ours = float(
        layer_bytes_per_token(whole, layout(), whole.model.stack.largest)
    ) + cpu_bytes_per_token(whole, attention)
    assert ours == pytest.approx((three - one) / 2 / tokens(kind), rel=PART)


@pytest.mark.parametrize("attention", KERNELS)
@pytest.mark.parametrize("kind", MODELS)
def test_checkpointing_keeps_a_layers_input(kind: str, attention: str) -> None:
    """With gradient checkpointing a layer keeps 2 bytes × hidden a token, to the byte."""
    one, three = (tracked(kind, layers, attention, checkpoint=True).kept for layers in (1, 3))
    assert (three - one) / 2 == 2 * 1024 * tokens(kind)


@pytest.mark.parametrize("kind", MODELS)
def test_logits_and_loss(kind: str) -> None:
    """The loss's peak over what the layers keep is within 3 % of the ledger's, once the vocabulary
    is large.
    """
    shape = {**config(kind, 2, "sdpa"), "vocab_size": 64000}
    count = track(shape, dtype="bfloat16", attention="sdpa", checkpoint=True, micro_batch=2)
    layers = 2 * 2 * 1024 * tokens(kind)
    whole = planned(kind, 2, "sdpa")
    ours = float(output_bytes(whole, layout(checkpoint=True), 64000))
    assert ours == pytest.approx(count.moment - layers, rel=PART)


@pytest.mark.parametrize("checkpoint", [False, True], ids=["kept", "checkpointed"])
@pytest.mark.parametrize("attention", KERNELS)
@pytest.mark.parametrize("kind", MODELS)
def test_peak(kind: str, attention: str, checkpoint: bool) -> None:
    """All that lives beside the states at the peak, workspace of the backward pass included, is
    within 5 %.
    """
    count = tracked(kind, 3, attention, checkpoint=checkpoint)
    whole = planned(kind, 3, attention)
    ledger = memory(whole, layout(checkpoint=checkpoint))
    backward = float(workspace_bytes(whole, layout(checkpoint=checkpoint)))
    ours = float(ledger.activations_bytes) - backward + max(backward, float(ledger.output_bytes))
    cpu = (1 if checkpoint else 3) * cpu_bytes_per_token(whole, attention) * tokens(kind)
    assert ours + cpu == pytest.approx(count.moment, rel=PEAK)
