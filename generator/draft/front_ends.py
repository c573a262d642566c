"""A job spec's keys from the settings of a front end's launch.

They are what the engine's options don't say: GPUs, model and lengths, and the share of the card
that an engine for generation keeps while the model is trained.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from math import isfinite
from pathlib import PurePath
from typing import Any, Final

from ..catalog import find_model
from ..job.overrides import plain_source
from ..job.resolve_names import resolve_cluster
from ..numerals import python_float, whole
from ..patterns import lazy_pattern
from ..programs.launching.settings import Setting, Settings, library_settings_of, settings_of
from ..text.options import basename
from ..units import GIB
from .draft import Draft, LeftOut

_ADAPTERS: Final = (
    "its adapters aren't planned with Megatron: the spec trains every parameter (framework: "
    "megatron-bridge plans those of its own recipes)"
)
_STAGE: Final = lazy_pattern(r"zero([0-3])(?:_offload)?$")
#: Settings that only launches have which generate samples.
_GENERATES: Final = ("prompts", "generated", "vllm")


def read_front_end(draft: Draft) -> None:
    """Set the keys that a front end's own settings give; what other files say stays."""
    settings = _settings(draft)
    if settings is None:
        return

    draft.refused = draft.refused or _other_engine(draft, settings)
    for key, value in _keys_of(draft, settings).items():
        if draft.get(key) is None:
            draft.set(key, value)
    # The front end's own values where the engine's defaults would be.
    for key, entry in settings.front_end.instead.items():
        if settings.meets(entry["where"]):
            draft.set(key, entry["value"])
    _accumulate(draft, settings)

    # Where no file says how long the model's contexts are, they hold what it is trained on.
    longest = draft.get("training.sequence_length")
    assumed = "model.max_position_embeddings"
    is_assumed = assumed in draft.comments  # by which a spec says that no file has it
    if is_assumed and (longest or 0) > (draft.get(assumed) or 0):
        draft.set(assumed, longest)

    _read_adapters(draft, settings)
    _name_unplanned(draft, settings)


def _keys_of(draft: Draft, settings: Settings) -> dict[str, Any]:
    """The keys of the spec that settings give; None where a setting doesn't."""
    # A count is the product of the settings that it names.
    has_counts = {"nodes", "per_node"} <= settings.front_end.settings.keys()
    gpus = settings.count("nodes per_node") if has_counts else None
    experts = _number(settings, "expert")
    if experts is not None and experts <= 1:
        experts = None
    keys: dict[str, Any] = {
        "gpus": gpus.value if gpus else None,
        "model": _model(draft, settings),
        "training.sequence_length": _length(draft, settings),
        "training.learning_rate": _rate(settings),
        "layout.micro_batch": _number(settings, "micro"),
        "layout.expert": experts,
        "layout.expert_tensor": _expert_tensor(settings) if experts else None,
        "layout.zero_stage": _stage(settings),
        "layout.recompute": _recompute(settings),
        "layout.offload": _offload(settings),
        "training.global_batch": _number(settings, "batch"),
        **settings.front_end.spec,  # what all its runs are
    }
    for key, short in settings.front_end.pins.items():
        setting = settings.get(short)
        keys[key] = setting.number if setting is not None else None
    return keys


def _read_adapters(draft: Draft, settings: Settings) -> None:
    """Set the adapters that the launch trains, or name them where they aren't planned."""
    tuner = _get(settings, "tuner")
    rank = _get(settings, "rank")  # of a front end whose adapters are planned
    if tuner is not None and tuner.text == "lora" and rank is not None:
        lora = {"rank": rank.number, "modules": "all-linear"}
        alpha = _get(settings, "alpha")
        draft.set("training.lora", lora if alpha is None else {**lora, "alpha": alpha.number})
    elif tuner is not None and tuner.text != "full":
        draft.leave(str(tuner), tuner.where or settings.place, _ADAPTERS)


def _settings(draft: Draft) -> Settings | None:
    """The settings of a front end's launch, or of a Trainer's whose script uses its classes."""
    launch = draft.found.launch
    if launch is None:
        return None
    trainer = draft.found.trainer
    if trainer is None:
        return settings_of(launch)
    if trainer.launch is not None:
        return library_settings_of(launch)
    return library_settings_of(launch, trainer.values, trainer.locate)


def _other_engine(draft: Draft, settings: Settings) -> LeftOut | None:
    """Why a launch has no spec: it starts, or may start, an engine that isn't read."""
    row = settings.front_end
    if settings.starts_another and not settings.hides:
        why = f"dsgen plans {row.otherwise} for the Hugging Face Trainer alone"
        return LeftOut(f"{row.otherwise}, with which {row.name} trains", settings.place, why)
    if row.otherwise and not settings.starts_the_engine and draft.found.megatron is None:
        why = f"which engine it starts isn't in the files: {row.engine} or {row.otherwise}"
        return LeftOut(row.name, settings.place, why)
    return None


def _name_unplanned(draft: Draft, settings: Settings) -> None:
    """Name what a launch does and no plan has: split sequences, further models, generation."""
    split = _get(settings, "cut")  # of sequences over GPUs
    if split is not None and split.where is not None and (split.number or 1) > 1:
        draft.leave(
            str(split), split.where, "not planned: the spec has whole sequences on each GPU"
        )

    for entry in settings.front_end.beside:
        if settings.meets(entry["where"]):
            setting = _get(settings, entry["at"])
            text, where = settings.front_end.name, settings.place
            if setting is not None:
                text, where = str(setting), setting.where or settings.place
            draft.leave(text, where, f"not planned: {entry['needs']}")

    kind = _get(settings, "kind")
    if kind is not None and kind.where is not None:
        reason = settings.front_end.kinds_not_planned.get(kind.text)
        if reason is not None:
            draft.leave(str(kind), kind.where, f"not planned: {reason}")

    generates = settings.front_end.generates
    generates_itself = bool(generates) and settings.meets(generates)
    written = [name for name in _GENERATES if name in settings.front_end.settings]
    if generates_itself or any(_is_set(settings, name) for name in written):
        why = "generation isn't planned: the spec has the training alone"
        draft.leave(settings.front_end.name, settings.place, why)


def subcommand_of(draft: Draft) -> tuple[str, ...]:
    """The word between a front end's command and its options: `sft` of `swift sft --model ...`.

    Empty for a launch with Megatron's options: a spec's arguments hold options alone.
    """
    launch = draft.found.launch
    settings = None if launch is None else settings_of(launch)
    if launch is None or settings is None or launch.program is None or not launch.calls:
        return ()
    if draft.parser.flavour is not None:
        return ()

    words = launch.calls[-1].command.words
    subcommands = settings.front_end.commands.get(basename(launch.program), ())
    after = (word for before, word in pairwise(words) if before.offset == launch.program.offset)
    text = next((word.value for word in after), None)
    return (text,) if text is not None and text in subcommands else ()


def why_unwritten(draft: Draft) -> str:
    """Why dsgen can't write this front end's launch; empty where it can."""
    launch = draft.found.launch
    settings = None if launch is None else settings_of(launch)
    return "" if settings is None else settings.front_end.unwritten


def reserve_share(draft: Draft) -> None:
    """Set `memory.reserved_gib` to what an engine for generation keeps of the card."""
    settings = _settings(draft)
    shares = settings.front_end.shares if settings is not None else {}
    if settings is None or not shares or not settings.meets(shares):
        return

    share = settings.get("share")
    fraction = python_float(share.text) if share is not None else None
    if share is None or fraction is None or not 0 < fraction < 1:
        return
    capacity = _card_bytes(draft.get("cluster"))
    if capacity is None:
        draft.leave(str(share), share.where or settings.place, "the card's memory isn't known")
    else:
        draft.set("memory.reserved_gib", round(fraction * capacity / GIB, 1))
        draft.comments["memory.reserved_gib"] = f"{share}: the engine for generation keeps it"


def _expert_tensor(settings: Settings) -> int | None:
    """The tensor parallelism of the experts, by default too."""
    setting = _get(settings, "expert_tensor")
    return setting.number if setting is not None else None


def _stage(settings: Settings) -> int | None:
    """The stage of a DeepSpeed config that the front end brings: `--deepspeed zero2`."""
    setting = _get(settings, "deepspeed")
    match = _STAGE.match(setting.text) if setting is not None else None
    return whole(match[1]) if match else None


def _is_set(settings: Settings, short: str) -> bool:
    """Whether the launch writes a setting, and not as false."""
    setting = settings.get(short)
    return setting is not None and setting.where is not None and setting.text != "false"


def _is_unset(settings: Settings, short: str) -> bool:
    """Whether nothing gives a setting a value."""
    return settings.meets({short: "-"})


def _accumulate(draft: Draft, settings: Settings) -> None:
    """Set the accumulation and the batch that a front end takes where no option says them.

    It accumulates as many steps as a batch of at least `accumulates_to` sequences needs.
    """
    least_batch, gpus = settings.front_end.accumulates_to, draft.get("gpus")
    micro = draft.get("layout.micro_batch") or 1
    if not least_batch or not isinstance(gpus, int) or settings.get("steps") is not None:
        return

    steps = max(1, -(-least_batch // (micro * gpus)))
    draft.set("layout.micro_batch", micro)
    draft.set("layout.gradient_accumulation", steps)
    draft.set("training.global_batch", micro * steps * gpus)


def _get(settings: Settings, short: str) -> Setting | None:
    """A setting, where the front end's row has it; None otherwise."""
    return settings.get(short) if short in settings.front_end.settings else None


def _number(settings: Settings, short: str) -> int | None:
    """The number that the launch writes for a setting, itself or as a product of several.

    None where all are defaults.
    """
    if short in settings.front_end.counts:
        count = settings.count(settings.front_end.counts[short])
        is_written = count is not None and bool(count.settings)  # which has the written ones alone
        return count.value if count is not None and is_written else None
    setting = _get(settings, short)
    return setting.number if setting is not None and setting.where is not None else None


def _length(draft: Draft, settings: Settings) -> int | None:
    """The tokens of a sequence: as the launch writes them, by its parts, or by default."""
    setting = _get(settings, "length")
    if setting is not None and setting.where is not None:
        return setting.number
    of_parts = settings.front_end.counts.get("length")
    count = settings.count(of_parts) if of_parts is not None else None
    if count is not None:
        return count.value
    if setting is None and of_parts is not None and _is_unset(settings, "prompt"):
        response = settings.get("response")
        if response is not None:
            why = "no option bounds the prompts, which come on top: set training.sequence_length"
            draft.leave(str(response), response.where or settings.place, why)
            return response.number
    return setting.number if setting is not None else None


def _recompute(settings: Settings) -> str | None:
    """Recomputation, where a setting of the front end's own says it."""
    setting = _get(settings, "checkpointing")
    if setting is None or settings.front_end.is_of_trainer:
        return None
    return "none" if setting.text == "false" else "full"


def _offload(settings: Settings) -> str | None:
    """What of the states is in the host's memory, where a setting says it."""
    setting = _get(settings, "adam_offload")
    if setting is None:
        return None
    return "none" if setting.text == "false" else "optimizer"


def _rate(settings: Settings) -> float | None:
    """The learning rate that the launch writes."""
    setting = _get(settings, "rate")
    rate = python_float(setting.text) if setting is not None and setting.where else None
    return rate if rate is not None and isfinite(rate) and rate > 0 else None


def _model(draft: Draft, settings: Settings) -> str | None:
    """The catalog's name of the model that a setting names by its path or repository."""
    setting = _get(settings, "model")
    if setting is None:
        return None
    # A checkpoint in FP8 has the shape of the model that the catalog has.
    entry = find_model(PurePath(setting.text).name.removesuffix("-FP8"))
    if entry is None and draft.get("model") is None:
        why = "the catalog has no model of that name: give --model"
        draft.leave(str(setting), setting.where or settings.place, why)
    return entry.name if entry is not None else None


def _card_bytes(cluster: object) -> float | None:
    """The memory of a cluster's accelerator; None where it isn't known."""
    if not isinstance(cluster, (str, Mapping)):
        return None
    resolved, _ = resolve_cluster(plain_source({"cluster": cluster}), cluster)
    return None if resolved is None else float(resolved.accelerator.memory_bytes)
