"""What the allocator would hold for a real Hugging Face model, without a GPU: fake tensors, torch's
memory tracker.
"""

from __future__ import annotations

import warnings
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

#: Model types to the transformers' class that trains them.
_CLASSES = {
    "llama": "LlamaForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "mixtral": "MixtralForCausalLM",
    "gpt2": "GPT2LMHeadModel",
    "bert": "BertForMaskedLM",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tracked:
    """Bytes of the second step of a training loop that accumulates two micro-batches."""

    parameters: int
    gradients: int
    optimizer: int
    kept: int  #: activations after the forward pass, the loss's softmax with them
    peak: int  #: all together, at most, while the second micro-batch runs
    moment: int  #: activations and temporaries at that peak


def track(
    config: dict[str, Any],
    *,
    dtype: str,
    attention: str,
    checkpoint: bool,
    micro_batch: int,
    prepare: Callable[[Any], None] | None = None,
) -> Tracked:
    """Train the model of a `config.json`, as `prepare` leaves it, on sequences of its longest
    length.
    """
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    usual = torch.get_default_dtype()
    with warnings.catch_warnings(), FakeTensorMode(allow_non_fake_inputs=True):
        # the tracker's own, and deprecations between torch and transformers
        warnings.simplefilter("ignore")
        torch.set_default_dtype(getattr(torch, dtype))
        model = build(config, attention)
        if prepare is not None:
            prepare(model)
        torch.set_default_dtype(usual)
        model.train()
        if checkpoint:
            model.gradient_checkpointing_enable(
                gradient_checkpointing_kwargs={"use_reentrant": True}
            )
        optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad])
        length = model.config.max_position_embeddings
        tokens = torch.randint(0, config["vocab_size"], (micro_batch, length))
        tracker = _whole_model_tracker()
        for parameter in (
            p for p in model.parameters() if not p.requires_grad
        ):  # it would hook their gradients
            handles = (torch.utils.hooks.RemovableHandle(OrderedDict()),) * 2
            tracker._param_to_grad_hook_handles[parameter] = handles
        tracker.track_external(model, optimizer, tokens)
        with tracker:
            _pass(model, tokens)
            optimizer.step()
            optimizer.zero_grad()
            tracker.reset_mod_stats()
            _pass(model, tokens)  # leaves gradients to add to
            tracker.reset_mod_stats()
            tracker._peak_mem, tracker._peak_mem_snap = {}, {}
            loss = model(input_ids=tokens, labels=tokens).loss
            kept = _parts(tracker, "current")
            loss.backward()
            peak = _parts(tracker, "peak")
    return Tracked(
        parameters=peak["PARAM"],
        gradients=peak["GRAD"],
        optimizer=peak["OPT"],
        kept=kept["ACT"],
        peak=peak["Total"],
        moment=peak["ACT"] + peak.get("TEMP", 0),
    )


def _whole_model_tracker() -> Any:
    """torch's tracker without peaks by module, which take half of its time."""
    from torch.distributed._tools.mem_tracker import MemTracker

    class WholeModel(MemTracker):
        def _update_peak_stats(self, peak_state: Any) -> None:
            for device, now in self._curr_mem_snap.items():
                if now["Total"] > self._peak_mem.get(device, 0):
                    self._peak_mem[device] = now["Total"]
                    self._peak_mem_snap[device] = dict(now)

    return WholeModel()


def build(config: dict[str, Any], attention: str) -> Any:
    """The model of a `config.json`, with random weights."""
    import transformers

    kind = config["model_type"]
    settings = transformers.AutoConfig.for_model(**config)
    settings._attn_implementation = attention
    settings.use_cache = False
    return getattr(transformers, _CLASSES[kind])(settings)


def _pass(model: Any, tokens: Any) -> None:
    model(input_ids=tokens, labels=tokens).loss.backward()


def _parts(tracker: Any, when: str) -> dict[str, int]:
    """Bytes by kind, all devices together."""
    (device,) = tracker.get_tracker_snapshot(when).values()
    return {str(kind).rpartition(".")[2]: size for kind, size in device.items()}
