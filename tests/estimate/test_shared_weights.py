"""Places in a stack that use weights which a layer before holds (Zamba): parameters and states are
those of each copy, operations and activations those of each place.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import dsgen
from dsgen.catalog.model import Model
from dsgen.estimate.flops import active_matrix_parameters
from dsgen.estimate.model_size import parameter_count
from dsgen.estimate.stages import stage_contents
from dsgen.job.hf_config import model_from_config
from tests.estimate.test_mixers import keeping, kept_elements
from tests.needs import needs_transformers
from tests.rules.jobs import job

#: Two blocks, each of which two of four places use.
CONFIG: dict[str, Any] = {
    "model_type": "zamba2",
    "hidden_size": 128,
    "intermediate_size": 320,
    "num_hidden_layers": 6,
    "layers_block_type": ["mamba", "hybrid", "hybrid"] * 2,
    "num_mem_blocks": 2,
    "num_attention_heads": 4,
    "n_mamba_heads": 4,
    "adapter_rank": 16,
    "use_shared_attention_adapter": True,
    "vocab_size": 64,
}
#: Attention of twice the hidden size, a gated MLP, and three norms.
_BLOCK = 3 * 256 * 256 + 256 * 128 + 3 * 128 * 320 + 3 * 128


def model_of(**changes: Any) -> Model:
    """The model of the config with some keys changed."""
    return model_from_config({**CONFIG, **changes}, name="x", source="a test")


def test_blocks_are_held_once_and_computed_in_each_place() -> None:
    """With a block for each place instead of one for two, two blocks' parameters are more, and a
    token meets as many as before.
    """
    shared, apart = model_of(), model_of(num_mem_blocks=4)
    assert parameter_count(apart) - parameter_count(shared) == 2 * _BLOCK
    jobs = [replace(job("huggingface"), model=model) for model in (shared, apart)]
    assert active_matrix_parameters(jobs[0]) == active_matrix_parameters(jobs[1])


@pytest.mark.parametrize(("pipeline", "copies"), [(1, 2), (2, 4), (3, 4)])
def test_a_stage_has_a_copy_of_what_its_layers_use(pipeline: int, copies: int) -> None:
    """A stage without the layer that holds a block has a copy of it: of four places on one stage
    two hold a block, on two stages two each, and on three stages two, one and two.
    """
    whole = replace(job("deepspeed"), model=model_of())
    plan = dsgen.estimate(job("deepspeed")).layout
    cut = replace(plan, pipeline=pipeline, tensor=1, virtual_pipeline=1)
    held = [stage_contents(whole, cut, np.asarray(stage)) for stage in range(pipeline)]
    again = sum(float(each.again) for each in held)
    assert again == (4 - copies) * _BLOCK


@needs_transformers
@pytest.mark.integration
@pytest.mark.parametrize("adapts", [False, True])
def test_a_place_keeps_and_computes_what_is_counted(
    adapts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A place of Zamba2, the kernel of Mamba aside, keeps exactly the elements of its layer, and
    beside them angles, roots of its norms and on a CPU sums of attention's rows; its products are
    those of the layer.
    """
    import torch
    from torch.utils.flop_counter import FlopCounterMode
    from transformers import AutoConfig
    from transformers.models.zamba2 import modeling_zamba2 as modeling

    split = keeping(lambda projected, out: (projected, out), place=1)

    def combined(projected: Any, *_: Any, outproj_weight: Any, **__: Any) -> Any:
        out = torch.zeros(*projected.shape[:2], outproj_weight.shape[1], dtype=projected.dtype)
        return split(projected, out)[..., :128]

    monkeypatch.setattr(modeling, "mamba2_split_conv1d_scan_combined", combined)
    keys = {**CONFIG, "use_shared_attention_adapter": adapts, "use_mem_rope": True}
    config = AutoConfig.for_model(**keys, attn_implementation="sdpa")

    class Place(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.place = modeling.Zamba2Model(config).train().layers[1]

        def forward(self, state: Any) -> Any:
            angles = torch.ones(1, state.shape[1], 64, dtype=state.dtype)
            embedding = 1 * state
            return self.place(state, embedding, 1, position_embeddings=(angles, angles))

    layer = model_of(use_shared_attention_adapter=adapts, use_mem_rope=True).stack.kinds[1]
    state, activation = 2 * 128, 4 * 320  # normalised for Mamba, and for the MLP
    norms = 3 * layer.norms * 128  # an fp32 input, and the result before the weight
    angles, roots, sums = 64, 3 * 2, 4 * 2
    kept = layer.mixer.kept_elements(repeats_keys=False, packs=False)
    expected = kept + state + activation + norms + angles + roots + sums
    assert kept_elements(Place(), 64, 128) == expected

    counter = FlopCounterMode(display=False)
    with counter, torch.no_grad():
        Place()(torch.randn(1, 64, 128))
    operations = counter.get_flop_counts()["Global"]
    products = sum(n for name, n in operations.items() if "mm" in str(name))
    in_kernel = 256 * 128  # Mamba's last product
    parts = (*layer.mixer.products, *layer.feed_forward.products(320))
    assert products / 64 == 2 * (sum(p.inputs * p.outputs for p in parts) - in_kernel)
