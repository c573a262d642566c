"""A run of Megatron's as keys of the spec: its shape, its layout, and what is trained."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from pathlib import PurePath
from typing import Any, Final

from ..catalog import Model, find_model
from ..job.records import Pins
from ..job.releases import OLDEST_MEGATRON
from ..numerals import whole
from ..patterns import lazy_pattern
from ..programs.megatron.facts import MegatronFacts, at_least
from ..programs.megatron.run import MegatronRun
from ..programs.megatron.table import GROUPS, NULL_TOKENIZER, OLD_RECOMPUTE, SHARDINGS, decoded
from ..text.wording import dots
from .draft import Draft, Parser, options_of_file, options_of_launch
from .scripts import set_script

#: Beginning of a model's keys, as rows of the table of options name them.
_OF_MODEL: Final = "model."
_USUAL_POSITIONS: Final = 2048  # where no file says a length


def _several(degree: int | None) -> bool:
    return degree is not None and degree > 1


#: Pins that mean something only beside others, with the condition for it; the second argument says
#: whether the model has experts.
_RELEVANT: Final[Mapping[str, Callable[[Pins, bool], bool]]] = {
    "expert": lambda pins, moe: moe,
    "expert_tensor": lambda pins, moe: moe,
    "expert_overlap": lambda pins, moe: moe,
    "virtual_pipeline": lambda pins, _: _several(pins.pipeline),
    "first_stage_layers": lambda pins, _: _several(pins.pipeline) and bool(pins.first_stage_layers),
    "last_stage_layers": lambda pins, _: _several(pins.pipeline) and bool(pins.last_stage_layers),
    "context_heads": lambda pins, _: _several(pins.context),
    "tensor_overlap": lambda pins, _: _several(pins.tensor),
    "sequence_parallel": lambda pins, _: _several(pins.tensor),
    "offload": lambda pins, _: pins.zero_stage != 0 or pins.offload != "none",
    "zero_copies": lambda pins, _: pins.zero_copies != 1,
    "zero_hpz": lambda pins, _: pins.zero_hpz != 1,
}
#: Vocabularies of tokenizers that are one file. Source: their own files; OpenAI's GPT-2, Meta's
#: Llama 2, Google's BERT.
_VOCABULARIES: Final = {
    "GPT2BPETokenizer": 50257,
    "Llama2Tokenizer": 32000,
    "BertWordPieceLowerCase": 30522,
}
#: --moe-layer-freq of a model whose first layers are dense: `([0]*3+[1]*58)`.
_FIRST_DENSE: Final = lazy_pattern(r"\(?\[0\]\*([0-9]{1,6})\+\[1\]\*([0-9]{1,6})\)?")
_DTYPES: Final = ("fp8_parameters", "fp8_recipe", "gradient_dtype", "master_dtype", "moment_dtype")


def read_megatron(draft: Draft, facts: MegatronFacts) -> None:
    """Set the keys that the arguments say; other arguments are carried over as they are."""
    run, front_end = facts.run, facts.run.front_end
    explicit = front_end is not None and front_end.explicit_flags
    draft.parser = Parser(flavour=run.flavour, explicit_flags=explicit)
    if run.launch:
        draft.options = tuple(options_of_launch(run.launch, draft.parser))
    else:
        draft.options = tuple(options_of_file(run, draft.parser))
    draft.set("framework", run.flavour)
    _read_release(draft, run)
    set_script(draft)
    keys = decoded(run)
    of_model = [key for key in keys if key.startswith(_OF_MODEL)]
    _read_model(draft, facts, {key.removeprefix(_OF_MODEL): keys.pop(key) for key in of_model})
    _read_training(draft, facts)
    if run.has("--train-iters"):
        keys.pop("training.duration.samples", None)
    if run.ramp is not None:
        start, increment, samples = run.ramp
        ramp = {"start": start, "increment": increment, "samples": samples}
        keys["training.batch_ramp"] = ramp
    for key, value in keys.items():
        draft.set(key, value)
    saved = draft.get("output.checkpoints")
    if saved is None and draft.get("output"):
        draft.drop("output.save_interval")  # nothing would be saved
    if saved is not None and run.value("--load") != saved:
        draft.set("output.resume", False)
    for name, pin in _pins(facts):
        draft.set(f"layout.{name}", pin)


def _read_release(draft: Draft, run: MegatronRun) -> None:
    """Set the release of Megatron-Core that the repository names, where it has a writer."""
    release = run.release
    if not run.is_lm or not release.where or not release.exact:
        return
    if release.version >= OLDEST_MEGATRON:
        draft.set("megatron_version", dots(release.version))
    else:
        oldest = f"older than {dots(OLDEST_MEGATRON)}, the oldest that has a writer"
        draft.leave(str(release), run.locate(""), f"{oldest}; written for the newest")


def _pins(facts: MegatronFacts) -> Iterator[tuple[str, Any]]:
    """The layout keys that the arguments state, by default too, unless they follow from others."""
    run, pins, moe = facts.run, facts.job.pins, at_least(facts.job).model.experts > 0
    for field in fields(Pins):
        value = getattr(pins, field.name)
        if value is None or field.name in ("data", "gradient_accumulation"):
            continue
        if field.name not in _RELEVANT or _RELEVANT[field.name](pins, moe):
            yield field.name, list(value) if isinstance(value, tuple) else value
    if any(stray.word == OLD_RECOMPUTE for stray in run.strays):
        yield "recompute", "full"
    stages = {name: stage for stage, name in SHARDINGS.items()}
    sharding = stages.get(str(run.value("--data-parallel-sharding-strategy")))
    if run.is_lm and run.has("--use-megatron-fsdp") and sharding:
        yield "zero_stage", sharding
    if pins.gradient_accumulation is not None and not facts.knows("global_batch"):
        yield "gradient_accumulation", pins.gradient_accumulation


def _read_model(draft: Draft, facts: MegatronFacts, read: dict[str, Any]) -> None:
    """Set the model by Hugging Face's keys, where its layers, width and heads are written."""
    if not facts.knows("layers", "hidden", "heads"):
        return
    run, model = facts.run, at_least(facts.job).model
    positions = _positions(run)
    has_groups = facts.knows("kv_heads") and model.kv_heads != model.heads
    has_own_width = facts.knows("head_dim") and model.head_dim * model.heads != model.hidden
    gated, bias = model.feed_forward.gated, not run.has("--disable-bias-linear")
    # What a spec takes where these keys are left out: a plain MLP four times as wide as the hidden
    # state, biases of plain MLPs alone.
    is_usual_width = not gated and model.ffn == 4 * model.hidden
    is_usual_bias = bias != gated
    length = run.size("--max-position-embeddings") or run.size("--seq-length")
    if length is None:
        draft.comments["model.max_position_embeddings"] = "assumed: the files don't say it"
    keys: dict[str, Any] = {
        "num_hidden_layers": model.layers,
        "hidden_size": model.hidden,
        "num_attention_heads": model.heads,
        "num_key_value_heads": model.kv_heads if has_groups else None,
        "head_dim": model.head_dim if has_own_width else None,
        "intermediate_size": None if is_usual_width else model.ffn or None,
        "vocab_size": _vocabulary(draft, run),
        "max_position_embeddings": length or _USUAL_POSITIONS,
        "position_embedding": positions,
        "gated_mlp": gated,
        "tie_word_embeddings": not run.has("--untie-embeddings-and-output-weights"),
        "attention_bias": None if is_usual_bias else bias,
        "mlp_bias": None if is_usual_bias else bias,
        **read,
        **_experts(model, run),
    }
    if positions != "rotary":
        keys.pop("rope_theta", None)
    if run.has("--multi-latent-attention"):
        keys.pop("head_dim", None)
    else:
        for row in GROUPS["latent attention"]:
            keys.pop(row.key.removeprefix(_OF_MODEL), None)
    draft.set("model", {key: value for key, value in keys.items() if value is not None})


def _positions(run: MegatronRun) -> str:
    """How positions are told, by the names of a spec."""
    kind = run.value("--position-embedding-type")
    if kind == "rope" or run.has("--use-rotary-position-embeddings"):
        return "rotary"
    if kind == "none" or run.has("--no-position-embedding"):
        return "none"
    return "learned"


def _experts(model: Model, run: MegatronRun) -> dict[str, Any]:
    """The keys of a model with experts."""
    if not model.experts:
        return {}
    keys: dict[str, Any] = {
        "num_experts": model.experts,
        "num_experts_per_tok": model.feed_forward.per_token,
        "moe_intermediate_size": model.moe_ffn or None,
    }
    shared = run.size("--moe-shared-expert-intermediate-size")
    if shared and model.moe_ffn and shared % model.moe_ffn == 0:
        keys["n_shared_experts"] = shared // model.moe_ffn
    elif shared:
        keys["shared_expert_intermediate_size"] = shared
    keys["first_k_dense_replace"] = _first_dense(model, run)
    return keys


def _first_dense(model: Model, run: MegatronRun) -> int | None:
    """How many of the first layers have no experts, where --moe-layer-freq lists all layers."""
    written = run.value("--moe-layer-freq")
    match = _FIRST_DENSE.fullmatch(written) if isinstance(written, str) else None
    if match is None:
        return None
    dense, routed = map(whole, match.groups())
    return dense if dense + routed == model.layers else None


def _vocabulary(draft: Draft, run: MegatronRun) -> int:
    """The tokenizer's size: as given, by the model that its path names, by its kind, or a guess."""
    kind, vocabulary = str(run.value("--tokenizer-type")), run.size("--vocab-size")
    if vocabulary:
        adds_end_token = kind == NULL_TOKENIZER
        return vocabulary + 1 if adds_end_token else vocabulary
    path = run.value("--tokenizer-model") or run.value("--tokenizer-name-or-path")
    entry = find_model(PurePath(str(path)).name) if path else None
    size = entry.config.get("vocab_size") if entry is not None else None
    if isinstance(size, int):
        return size
    if kind not in _VOCABULARIES:
        draft.comments["model.vocab_size"] = (
            "assumed: the files don't say how many tokens the tokenizer has"
        )
    return _VOCABULARIES.get(kind, _VOCABULARIES["GPT2BPETokenizer"])


def _read_training(draft: Draft, facts: MegatronFacts) -> None:
    """Set the keys of the training that no option has as it is."""
    run, training = facts.run, facts.job.training
    for key in ("sequence_length", "global_batch", "precision", "attention"):
        draft.set(f"training.{key}", getattr(training, key, None))
    wide = ("--bf16", "--fp16")
    is_fp32 = run.is_lm and run.sure(*wide) and not any(map(run.has, wide))
    if is_fp32 and getattr(training, "precision", None) in ("fp8", "nvfp4"):
        draft.comments["training.precision"] = (
            "beside bf16; without --bf16 the rest of theirs is fp32"
        )
    for key in _DTYPES:
        draft.set(f"training.{key}", _state(key, getattr(training, key, None), run))
    if run.is_lm and not run.has("--cross-entropy-loss-fusion"):
        draft.set("training.cross_entropy", "unfused")
    if run.is_lm and at_least(facts.job).model.experts:
        draft.set("training.dispatcher", _dispatcher(run))
    if run.is_lm:
        _read_graphs(draft, run, has_experts=bool(at_least(facts.job).model.experts))


#: Kinds of CUDA graphs by what captures them.
GRAPHS: Final = {
    "transformer_engine": "partial",
    "local": "partial",
    "full_iteration": "full_iteration",
}


def _read_graphs(draft: Draft, run: MegatronRun, *, has_experts: bool) -> None:
    """Set what is captured as CUDA graphs.

    With experts, whole iterations are captured only where HybridEP gives these static sizes.
    """
    kind = GRAPHS.get(str(run.value("--cuda-graph-impl")))
    if run.has("--external-cuda-graph") or run.has("--enable-cuda-graph"):
        kind = "partial"
    modules = run.value("--cuda-graph-modules") or run.value("--cuda-graph-scope")
    if kind and "full_iteration" in str(modules):
        kind = "full_iteration"
    if kind == "full_iteration" and has_experts:
        if _dispatcher(run) != "hybridep":
            return
        draft.set("training.expert_capacity", run.number("--moe-expert-rank-capacity-factor"))
        draft.set("training.paged_stash", run.has("--moe-paged-stash"))
    draft.set("training.cuda_graphs", kind)


def _dispatcher(run: MegatronRun) -> str | None:
    """The dispatcher of tokens, where the files name one that a spec has too."""
    kind = run.value("--moe-token-dispatcher-type")
    backend = run.value("--moe-flex-dispatcher-backend") or "deepep"
    named = backend if kind == "flex" else kind
    return str(named) if named in ("alltoall", "deepep", "hybridep") else None


def _state(key: str, value: Any, run: MegatronRun) -> Any:
    """The type of a state; of gradients only where it is not fp32, the default."""
    if not run.is_lm and key == "gradient_dtype":
        bf16 = run.has("--bf16")
        return value if bf16 and value == "same" else None
    return value if value not in ("fp32", "delayed", False) else None
