"""Rules on FSDP, by accelerate's config and by the Trainer's arguments.

What raises is an error, and so is a setting that certainly isn't what runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from difflib import SequenceMatcher
from typing import Final

from ....catalog.names import closest
from ....findings import ERROR, NOTE, WARNING, Violation, Violations
from ....job.hf_keys import every_layer_class, layer_classes
from ....numerals import is_whole, python_int
from ....patterns import lazy_pattern
from ....rules.violations import accelerate, listed, transformers
from ....submission.launches import Launch
from ....submission.subjects import subject
from ....submission.submission import Submission
from ....text.slips import is_slip
from ....text.wording import show, whole_number
from ...launching.launcher_call import LauncherCall
from ...launching.subjects import accelerate_calls
from ...python_around import release_in
from ..accelerate import AccelerateConfig
from ..fsdp_config import (
    POLICIES,
    STRATEGIES,
    Fsdp,
    flags_of,
    is_used,
    of_accelerate,
    of_arguments,
    words_of,
)
from ..submission import model_of
from ..training_arguments import TrainingArguments
from .accelerate import config_read_by
from .arguments import training_arguments
from .first_checks import CHECKS_ENGINE, checked_since

_PLUGIN: Final = accelerate("utils/dataclasses.py (FullyShardedDataParallelPlugin.__post_init__)")
_LAUNCH: Final = accelerate("utils/launch.py (prepare_multi_gpu_env)")
_ARGUMENTS: Final = transformers("src/transformers/training_args.py (_process_fsdp_args)")
_TRAINER: Final = transformers("src/transformers/trainer.py (create_accelerator_and_postprocess)")
#: The first release whose arguments mean version 2 where none is named.
_VERSION_2_BY_DEFAULT: Final = (5, 10)
_UNITS: Final = "transformer_layer_cls_to_wrap"
#: What classes of layers end in, behind the name of their model.
_LAYER: Final = lazy_pattern(r"(?:Decoder|Encoder)?(?:Layer|Block)$")
#: `DecodeLayer` and `DecoderLayers` are alike `DecoderLayer`, `MoEDecoderLayer` is not.
_ALIKE: Final = 0.9
_PREFETCHES: Final = ("BACKWARD_PRE", "BACKWARD_POST", "NO_PREFETCH")
_LEAST_BY_ACCELERATE: Final = 100_000_000  #: of min_num_params; accelerate commands/launch.py
_STATE_DICTS: Final = ("FULL_STATE_DICT", "SHARDED_STATE_DICT", "LOCAL_STATE_DICT")
#: Keys of version 1, with what FSDP2 has for them.
_INSTEAD_IN_FSDP2: Final = {
    "offload_params": "cpu_offload",
    "sharding_strategy": "reshard_after_forward",
}
#: Keys of `fsdp_config` that the Trainer reads for FSDP2.
_READ: Final = frozenset(
    {
        "version",
        "reshard_after_forward",
        "cpu_offload",
        "auto_wrap_policy",
        "min_num_params",
        "transformer_layer_cls_to_wrap",
        "cpu_ram_efficient_loading",
        "state_dict_type",
        "activation_checkpointing",
        "xla",
        "xla_fsdp_v2",
        "xla_fsdp_settings",
        "xla_fsdp_grad_ckpt",
    }
)


def _default_version(submission: Submission, arguments: TrainingArguments) -> int:
    """The version of FSDP that the Trainer uses where the settings name none; 0: not known."""
    release = release_in(submission, "transformers", arguments.path)
    if not release.is_known:
        return 0
    return 2 if release.version >= _VERSION_2_BY_DEFAULT else 1


@subject("accelerate config", "training arguments", "FSDP config")
def sharded(submission: Submission) -> Iterator[Fsdp]:
    """FSDP's settings of each accelerate config, and of each set of arguments."""
    all_arguments = submission.of(TrainingArguments)
    for launch, run in _by_accelerate(submission):
        started = [each for each in all_arguments if launch is not None and each.launch is launch]
        only = all_arguments if len(all_arguments) == 1 else ()
        trainer = next(iter(started or only), None)
        yield replace(run, arguments=trainer, model=model_of(submission, trainer))
    for arguments in all_arguments:
        if not is_used(arguments):
            continue
        default = _default_version(submission, arguments)
        run_of_trainer = of_arguments(submission, arguments, default)
        if run_of_trainer is not None:
            yield replace(run_of_trainer, model=model_of(submission, arguments))


def _by_accelerate(submission: Submission) -> Iterator[tuple[Launch | None, Fsdp]]:
    """FSDP's settings of accelerate's launch lines, and of configs that no line reads."""
    configs = [config for config in submission.of(AccelerateConfig) if config.readable]
    read, runs = list[AccelerateConfig](), list[Fsdp]()
    for call in accelerate_calls(submission):
        config = config_read_by(call, configs)
        has_unknown = call.opaque or any(flag.value is None for flag in flags_of(call).values())
        if has_unknown or (config is None and call.has("--config_file")):
            continue  # other settings may hold
        if config is not None:
            read.append(config)
        run = of_accelerate(config, call)
        if run is not None and run not in runs:
            runs.append(run)
            yield call.launch, run
    for config in configs:
        if any(config is other for other in read):
            continue
        run = of_accelerate(config)
        if run is not None:
            yield None, run


#: The runs that accelerate's plugin shards: with PyTorch/XLA none of it is used.
_by_plugin: Final = sharded.where(lambda run: not run.switch("xla", False))
_fsdp1: Final = _by_plugin.where(lambda run: run.version == 1)
fsdp2: Final = _by_plugin.where(lambda run: run.version == 2)
_fsdp2_by_accelerate: Final = fsdp2.where(lambda run: run.by_accelerate)
_by_trainer: Final = _by_plugin.where(lambda run: not run.by_accelerate)


def _at(run: Fsdp, name: str, message: str, hint: str, *, severity: object = None) -> Violation:
    """A violation at the place where a setting is written."""
    return Violation(run.locate(name), message, hint, severity=severity)  # type: ignore[arg-type]


@fsdp2.rule("FSDP020", ERROR, "init", _PLUGIN)
def reshard_is_a_switch(run: Fsdp) -> Violations:
    """In FSDP2 reshard_after_forward is true or false.
    Prevents: ValueError: invalid truth value full_shard
    Fix: use true for FULL_SHARD, false for SHARD_GRAD_OP"""
    value = run.values.get("reshard_after_forward")
    if value is not None and run.switch("reshard_after_forward", True) is None:
        kept = str(value).upper() in ("SHARD_GRAD_OP", "NO_RESHARD", "2")
        message = f"reshard_after_forward is {show(value)}; in FSDP2 it is true or false"
        yield _at(run, "reshard_after_forward", message, f"use {'false' if kept else 'true'}")


@_fsdp2_by_accelerate.rule("FSDP021", ERROR, "silent", _LAUNCH)
def strategy_is_of_version_1(run: Fsdp) -> Violations:
    """FSDP2 has reshard_after_forward and a mesh; fsdp_sharding_strategy is version 1's.
    Prevents: No error: all ranks share the states, and parameters are freed after the forward pass.
    Fix: use fsdp_reshard_after_forward: false for SHARD_GRAD_OP, and a parallelism_config with
    dp_replicate_size and dp_shard_size for HYBRID_SHARD
    """
    strategy = run.strategy
    if strategy in ("", STRATEGIES[0]) or strategy not in STRATEGIES:
        return
    if strategy == "SHARD_GRAD_OP" and run.switch("reshard_after_forward", True) is False:
        return
    if strategy.startswith("HYBRID") and "dp_replicate_size" in run.mesh:
        return
    message = f"fsdp_sharding_strategy {strategy} has no effect in FSDP2: FULL_SHARD over all ranks"
    if strategy == "SHARD_GRAD_OP":
        hint = f"use {run.written('reshard_after_forward', 'false')}"
    elif strategy == "NO_SHARD":
        hint = f"use {'--multi_gpu' if run.by_line else 'distributed_type: MULTI_GPU'}"
    elif run.by_line:
        sizes = (f"--parallelism_config_{name}_size" for name in ("dp_replicate", "dp_shard"))
        hint = f"add --use_parallelism_config, {' and '.join(sizes)}"
    else:
        hint = "add a parallelism_config with dp_replicate_size and dp_shard_size"
    yield _at(run, "sharding_strategy", message, hint)


@_fsdp1.rule("FSDP022", ERROR, "silent", _LAUNCH)
def strategy_has_its_key(run: Fsdp) -> Violations:
    """In version 1 the strategy is fsdp_sharding_strategy's.
    Prevents: No error: accelerate launch always passes a strategy on, FULL_SHARD by default, and it
    counts before reshard_after_forward.
    Fix: set fsdp_sharding_strategy
    """
    value = run.text("reshard_after_forward")
    if run.by_accelerate and value in STRATEGIES[1:] and run.strategy in ("", STRATEGIES[0]):
        message = f"fsdp_reshard_after_forward {value} has no effect in version 1: FULL_SHARD runs"
        hint = f"use {run.written('sharding_strategy', value)}"
        yield _at(run, "reshard_after_forward", message, hint)


@_fsdp1.rule("FSDP023", WARNING, "silent", accelerate("commands/launch.py:513"))
def version_2_is_named(run: Fsdp) -> Violations:
    """Settings of FSDP2 go with fsdp_version: 2.
    Prevents: No error: an accelerate config without fsdp_version runs FSDP1.
    Fix: set fsdp_version: 2"""
    value = run.values.get("reshard_after_forward")
    is_second = str(value).lower() in ("true", "false")
    if run.by_accelerate and is_second and "version" not in run.values:
        shown = str(value).lower()
        message = f"fsdp_reshard_after_forward {shown} without fsdp_version: FSDP1 runs"
        hint = f"add {run.written('version', 2)}"
        yield _at(run, "reshard_after_forward", message, hint)


@_by_plugin.rule("FSDP024", ERROR, "init", _PLUGIN)
def state_dict_is_known(run: Fsdp) -> Violations:
    """The type of state dict is FULL_STATE_DICT or SHARDED_STATE_DICT; version 1 has
    LOCAL_STATE_DICT too.
    Prevents: KeyError, or ValueError: FSDP2 does not support LOCAL_STATE_DICT
    Fix: use SHARDED_STATE_DICT
    """
    value = run.text("state_dict_type", _STATE_DICTS[0])
    kinds = _STATE_DICTS if run.version != 2 else _STATE_DICTS[:2]
    if value not in kinds and not (is_whole(value) and len(value) == 1):
        version = f"FSDP{run.version}" if run.version else "FSDP"
        message = f"state_dict_type is {show(run.values['state_dict_type'])}, which {version} lacks"
        yield _at(run, "state_dict_type", message, f"use {listed(kinds)}")


@_by_plugin.rule("FSDP025", ERROR, "init", _PLUGIN)
def offloaded_checkpoints_are_checkpoints(run: Fsdp) -> Violations:
    """activation_checkpointing_offload needs activation_checkpointing, and FSDP2.
    Prevents: ValueError: `activation_checkpointing_offload=True` requires
    `activation_checkpointing=True`, or `fsdp_version=2`
    Fix: set activation_checkpointing: true, and fsdp_version: 2
    """
    name = "activation_checkpointing_offload"
    if not run.by_accelerate or not run.switch(name, False):
        return
    if run.switch("activation_checkpointing", False) is False:
        message = f"fsdp_{name} without fsdp_activation_checkpointing"
        hint = f"add {run.written('activation_checkpointing', 'true')}"
        yield _at(run, name, message, hint)
    elif run.version == 1:
        message = f"fsdp_{name} with version 1 of FSDP"
        yield _at(run, name, message, f"use {run.written('version', 2)}")


@_by_plugin.rule("FSDP026", ERROR, "launcher", _LAUNCH)
def loading_once_is_synced(run: Fsdp) -> Violations:
    """cpu_ram_efficient_loading, which is on by default, goes with sync_module_states.
    Prevents: ValueError: When using `--fsdp_cpu_ram_efficient_loading` set
    `--fsdp_sync_module_states` to `True`
    Fix: remove fsdp_sync_module_states, or set both to false
    """
    loading = run.values.get("cpu_ram_efficient_loading", True)
    if run.by_accelerate and run.values.get("sync_module_states") is False and loading:
        message = "fsdp_sync_module_states is false, and one process loads for all"
        if "cpu_ram_efficient_loading" not in run.values:
            message += ": fsdp_cpu_ram_efficient_loading is true by default"
        hint = "remove it, or set fsdp_cpu_ram_efficient_loading: false"
        if run.flags:
            hint += " in the file"
        yield _at(run, "sync_module_states", message, hint)


@_by_plugin.rule("FSDP027", ERROR, "init", f"{_PLUGIN}; {_ARGUMENTS}")
def policy_is_known(run: Fsdp) -> Violations:
    """The wrap policy is TRANSFORMER_BASED_WRAP, SIZE_BASED_WRAP or NO_WRAP; the Trainer wants
    capitals.
    Prevents: ValueError: Invalid auto wrap policy, or `auto_wrap_policy` must be one of ...
    Fix: use TRANSFORMER_BASED_WRAP
    """
    value = run.values.get("auto_wrap_policy")
    if value is None:
        return
    policy = run.policy if run.by_accelerate else str(value)
    if policy not in POLICIES:
        message = f"auto_wrap_policy is {show(value)}, which accelerate does not have"
        hint = f"use {str(value).upper()}" if run.policy in POLICIES else f"use {listed(POLICIES)}"
        yield _at(run, "auto_wrap_policy", message, hint)


@_by_plugin.where(lambda run: run.by_accelerate).rule("FSDP050", ERROR, "init", _PLUGIN)
def names_are_accelerates(run: Fsdp) -> Violations:
    """A prefetch, and version 1's strategy, are ones that accelerate has.
    Prevents: KeyError: 'FULL_SHARDED', when the program starts
    Fix: use FULL_SHARD, and BACKWARD_PRE
    """
    strategies = STRATEGIES if run.version == 1 else ()
    choices = {"sharding_strategy": strategies, "backward_prefetch": _PREFETCHES}
    for name, known in choices.items():
        value = run.text(name)
        if known and value and value not in known and not is_whole(value):
            message = f"{name} is {show(run.values[name])}, which accelerate does not have"
            yield _at(run, name, message, f"use {listed(known)}")


@fsdp2.rule("FSDP028", ERROR, "init", accelerate("utils/fsdp_utils.py (fsdp2_apply_ac)"))
def checkpointing_has_a_policy(run: Fsdp) -> Violations:
    """activation_checkpointing in FSDP2 repeats the units of a wrap policy.
    Prevents: TypeError: 'NoneType' object is not callable
    Fix: set auto_wrap_policy: TRANSFORMER_BASED_WRAP"""
    if run.switch("activation_checkpointing", False) and run.policy == "NO_WRAP":
        stated = "auto_wrap_policy" in run.values
        message = f"activation_checkpointing with {'NO_WRAP' if stated else 'no auto_wrap_policy'}"
        name = "auto_wrap_policy" if stated else "activation_checkpointing"
        yield _at(run, name, message, f"use {run.written('auto_wrap_policy', POLICIES[0])}")


@fsdp2.rule("FSDP029", WARNING, "silent", accelerate("utils/fsdp_utils.py (fsdp2_prepare_model)"))
def layers_are_units(run: Fsdp) -> Violations:
    """A wrap policy makes a unit of each layer.
    Prevents: No error: all layers are one unit, whole on every GPU from the forward pass to the end
    of the backward pass.
    Fix: set auto_wrap_policy: TRANSFORMER_BASED_WRAP
    """
    if run.policy == POLICIES[0] and run.units is None and run.model is not None:
        classes = layer_classes(run.model.family)
        if classes is not None and not classes.named:
            message = f"{run.model.name} names no layers of its own: all are gathered at once"
            hint = f"add {run.written(_UNITS, ','.join(classes.names))}"
            yield _at(run, "auto_wrap_policy", message, hint)
        return
    if run.switch("activation_checkpointing", False) or run.policy != "NO_WRAP":
        return
    stated = "auto_wrap_policy" in run.values
    message = "NO_WRAP" if stated else "no fsdp_auto_wrap_policy, so that NO_WRAP holds"
    yield _at(
        run,
        "auto_wrap_policy",
        f"{message}: all layers are gathered at once",
        f"use {run.written('auto_wrap_policy', POLICIES[0])}",
    )


@fsdp2.rule("FSDP030", WARNING, "init", accelerate("utils/fsdp_utils.py:966-968"))
def sizes_make_no_units(run: Fsdp) -> Violations:
    """FSDP2 takes no SIZE_BASED_WRAP whose size a model's list of layers exceeds.
    Prevents: ValueError: fully_shard does not support containers that do not implement forward
    Fix: set auto_wrap_policy: TRANSFORMER_BASED_WRAP"""
    least = run.values.get("min_num_params", _LEAST_BY_ACCELERATE if run.by_accelerate else 0)
    least = python_int(least) if isinstance(least, str) else least
    if run.policy == "SIZE_BASED_WRAP" and isinstance(least, int) and least > 0:
        message = f"SIZE_BASED_WRAP by {least:,} parameters, which a list of layers exceeds"
        yield _at(run, "auto_wrap_policy", message, f"use {POLICIES[0]}")


@_fsdp1.rule("FSDP031", ERROR, "init", accelerate("state.py:1003"))
def gathered_sequences_need_version_2(run: Fsdp) -> Violations:
    """Context parallelism (cp_size) needs FSDP2.
    Prevents: ValueError: Using `cp_size>1` requires FSDP2
    Fix: set fsdp_version: 2"""
    size = run.mesh.get("cp_size")
    if size is not None and isinstance(size.value, int) and size.value > 1:
        message = f"cp_size {size.value} with version 1 of FSDP"
        yield Violation(size.where, message, f"set {run.written('version', 2)}")


@_by_trainer.rule("FSDP032", ERROR, "parse", _ARGUMENTS)
def words_are_strategies(run: Fsdp) -> Violations:
    """The words of --fsdp are strategies; a bare --fsdp switches it on.
    Prevents: ValueError: Unknown `fsdp` option: true; or `fsdp=hybrid_shard` is only available with
    FSDP1
    Fix: write --fsdp without a value, and the rest in fsdp_config
    """
    assert run.arguments is not None
    launch = run.arguments.launch
    if launch is not None and launch.front_end:  # such as ms-swift, which has words of its own
        return
    for word in words_of(run.arguments):
        where = run.arguments.locate("fsdp")
        if word.upper() in STRATEGIES:
            if run.version == 2 and word not in ("full_shard", "shard_grad_op"):
                message = f"fsdp {word} is version 1's, and version 2 runs"
                hint = "remove it; copies of the shards are sizes of a mesh in FSDP2"
                yield Violation(where, message, hint)
        elif word not in ("auto_wrap", "offload"):
            message = f"fsdp {word} is none of transformers' options"
            yield Violation(where, message, "write --fsdp without a value")


@training_arguments.rule("FSDP033", WARNING, "silent", _ARGUMENTS)
def config_needs_its_switch(arguments: TrainingArguments) -> Violations:
    """fsdp_config goes with fsdp.
    Prevents: No error: plain data parallelism runs, with whole states on every GPU.
    Fix: add --fsdp"""
    value = arguments.value("fsdp_config", "")
    has_config = arguments.has("fsdp_config") and value not in ({}, "", None)
    if has_config and arguments.lacks("fsdp"):
        message = "fsdp_config has no effect without fsdp: every GPU holds all states"
        yield Violation(arguments.locate("fsdp_config"), message, "add --fsdp (fsdp: true)")


@fsdp2.rule("FSDP034", WARNING, "silent", _ARGUMENTS)
def keys_are_read(run: Fsdp) -> Violations:
    """Every key of fsdp_config is one that the Trainer reads for FSDP2.
    Prevents: No error: the setting has its default.
    Fix: remove the key, or write what FSDP2 has for it"""
    unread = [name for name in run.values if name not in _READ]
    if run.by_accelerate or not unread:
        return
    unwritten = tuple(sorted(_READ.difference(run.values)))
    meant = {name: closest(name, unwritten, _ALIKE) for name in unread}
    instead = {name: _INSTEAD_IN_FSDP2.get(name) or meant[name] for name in unread}
    several, first = len(unread) > 1, unread[0]
    verb = "have" if several else "has"
    message = f"{', '.join(unread)} in fsdp_config {verb} no effect in FSDP2"
    if "version" not in run.values:
        message += ", which holds where no version is named"
    if not several and meant[first]:
        hint = f"did you mean {meant[first]}?"
    elif any(instead.values()):
        hint = f"use {', '.join(f'{new} for {name}' for name, new in instead.items() if new)}"
    else:
        hint = f"remove {'them' if several else 'it'}"
    yield _at(run, first, message, hint)


@_by_plugin.rule("FSDP035", ERROR, "init", _TRAINER)
def layers_are_repeated_once(run: Fsdp) -> Violations:
    """Activations are checkpointed by FSDP or by the Trainer, not by both.
    Prevents: ValueError: `activation_checkpointing` in the FSDP config and the training argument
    can't both be set to True
    Fix: remove gradient_checkpointing
    """
    arguments = run.arguments
    if arguments is None or not run.switch("activation_checkpointing", False):
        return
    for name in ("gradient_checkpointing", "activation_checkpointing"):
        if arguments.is_on(name):
            message = f"{name}, and activation_checkpointing of fsdp_config, are both on"
            yield Violation(arguments.locate(name), message, f"remove {name}")


@_by_plugin.rule("FSDP036", ERROR, "init", _TRAINER)
def shards_are_saved_whole(run: Fsdp) -> Violations:
    """save_only_model goes with FULL_STATE_DICT, and without load_best_model_at_end.
    Prevents: ValueError: save_only_model option is not compatible with FSDP state dict type
    'SHARDED_STATE_DICT', or can't be used with FSDP along with `load_best_model_at_end`
    Fix: remove save_only_model
    """
    arguments = run.arguments
    if arguments is None or not arguments.is_on("save_only_model"):
        return
    where = arguments.locate("save_only_model")
    if run.text("state_dict_type", _STATE_DICTS[0]) == "SHARDED_STATE_DICT":
        message = "save_only_model with SHARDED_STATE_DICT"
        yield Violation(where, message, "use FULL_STATE_DICT, or remove it")
    elif arguments.is_on("load_best_model_at_end"):
        message = "save_only_model with load_best_model_at_end, under FSDP"
        refused = Violation(where, message, "remove one of them")
        yield from checked_since(CHECKS_ENGINE, arguments, [refused])


@_by_trainer.rule(
    "FSDP037", NOTE, "silent", transformers("src/transformers/distributed/fsdp.py:45-51")
)
def one_process_loads(run: Fsdp) -> Violations:
    """Without accelerate launch, cpu_ram_efficient_loading needs ACCELERATE_USE_FSDP=true.
    Prevents: No error: every process loads the whole model, and the host may run out of memory.
    Fix: export ACCELERATE_USE_FSDP=true and FSDP_CPU_RAM_EFFICIENT_LOADING=true
    """
    launch = run.arguments.launch if run.arguments is not None else None
    if launch is None or not run.switch("cpu_ram_efficient_loading", False):
        return
    if launch.call("accelerate") is None and "ACCELERATE_USE_FSDP" not in launch.environment:
        message = "cpu_ram_efficient_loading without ACCELERATE_USE_FSDP: every process loads all"
        hint = "export ACCELERATE_USE_FSDP=true and FSDP_CPU_RAM_EFFICIENT_LOADING=true"
        yield _at(run, "cpu_ram_efficient_loading", message, hint)


@_fsdp2_by_accelerate.rule("FSDP038", ERROR, "init", accelerate("parallelism_config.py:381"))
def mesh_has_a_shard(run: Fsdp) -> Violations:
    """The mesh of FSDP2 has ranks to shard over: dp_shard_size or cp_size above 1.
    Prevents: ValueError: FSDP is enabled but the parallelism config has no dimension for FSDP to
    shard across
    Fix: set parallelism_config_dp_shard_size
    """
    sizes = {name: whole_number(size.value) for name, size in run.mesh.items()}
    # The ranks of these two share the states; None is a size that isn't known.
    may_shard = any(sizes.get(name, 1) != 1 for name in ("dp_shard_size", "cp_size"))
    others = [name for name in ("dp_replicate_size", "tp_size") if (sizes.get(name) or 1) > 1]
    if others and not may_shard:
        name = others[0]
        message = f"{name} {sizes[name]} without dp_shard_size: no ranks are left to shard over"
        hint = "set parallelism_config_dp_shard_size, or use distributed_type: MULTI_GPU"
        if run.by_line:
            hint = "set --parallelism_config_dp_shard_size, or use --multi_gpu"
        yield Violation(run.mesh[name].where, message, hint)


@_by_plugin.rule("FSDP039", ERROR, "init", f"{_PLUGIN}; get_module_class_from_name")
def units_are_of_the_model(run: Fsdp) -> Violations:
    """The classes of transformer_layer_cls_to_wrap are classes of the model.
    Prevents: ValueError: Could not find the transformer layer class ... in the model.
    Fix: name the class of the model's layers, or leave the key out
    """
    if isinstance(run.values.get(_UNITS), list) and run.by_accelerate:
        message = f"{_UNITS} is a list; accelerate takes its text as the name of one class"
        yield _at(run, _UNITS, message, "write the names with commas between, without blanks")
        return
    classes = layer_classes(run.model.family) if run.model is not None else None
    for name in run.units or ():
        if name.strip() != name:
            message = f"{_UNITS} has a blank before or after {name.strip()}, which is part of it"
            yield _at(run, _UNITS, message, "write the names with commas between, and no blanks")
        elif classes is None or run.model is None:
            meant = _meant(name, every_layer_class())
            if meant:
                message = f"{_UNITS} names {name}, which no model of transformers has"
                # Other letters may be a class's of the program itself.
                severity = None if _is_swapped(name, meant) else WARNING
                yield _at(run, _UNITS, message, f"use {meant}", severity=severity)
        elif name not in classes.names and _is_no_own_class(name, classes.names):
            message = f"{_UNITS} names {name}, which {run.model.name} does not have"
            yield _at(run, _UNITS, message, f"use {','.join(classes.names)}")


def _is_no_own_class(name: str, known: Iterable[str]) -> bool:
    """Whether a class can't be of a model's own code: it is another model's, or a slip."""
    return name in every_layer_class() or bool(_meant(name, known))


@accelerate_calls.rule(
    "FSDP040", WARNING, "silent", accelerate("utils/launch.py (prepare_multi_gpu_env)")
)
def flags_need_their_switch(call: LauncherCall) -> Violations:
    """--fsdp_* of accelerate's launch line go with --use_fsdp, or a config of FSDP.
    Prevents: No error: plain data parallelism runs, with whole states on every GPU.
    Fix: add --use_fsdp
    """
    flags = flags_of(call)
    if not flags or call.opaque or call.has("--use_fsdp"):
        return
    configs = [config for config in call.submission.of(AccelerateConfig) if config.readable]
    config = config_read_by(call, configs)
    if config is None and call.has("--config_file"):
        return
    if of_accelerate(config, call) is None:
        name, flag = next(iter(flags.items()))
        message = f"--fsdp_{name} has no effect without --use_fsdp: every GPU holds all states"
        yield Violation(flag.where, message, "add --use_fsdp")


@accelerate_calls.rule(
    "FSDP041", ERROR, "parse", accelerate("commands/launch.py (launch_command_parser)")
)
def flags_are_of_their_types(call: LauncherCall) -> Violations:
    """--fsdp_version is 1 or 2, and --fsdp_min_num_params an integer.
    Prevents: error: argument --fsdp_version: invalid choice
    Fix: use 2
    """
    version, least = call.argument("--fsdp_version"), call.argument("--fsdp_min_num_params")
    if version is not None and version.value not in (None, "1", "2"):
        yield version.bad_value(f"{version}: accelerate has 1 and 2", "use 2")
    if least is not None and least.value is not None and python_int(least.value) is None:
        yield least.bad_value(f"{least} is not an integer", "write the number out: 100000000")


def _meant(name: str, known: Iterable[str]) -> str:
    """The class of layers that a name is a slip of; "" where it is no slip, or may be none.

    Only the end may have a slip, behind the family's name, but for letters that are swapped:
    models of other programs are called alike.
    """
    names = frozenset(known)
    if name in names:
        return ""
    for known_name in sorted(names):
        family = _LAYER.sub("", known_name)
        if not family or not name.lower().startswith(family.lower()):
            continue
        end, known_end = name[len(family) :].lower(), known_name[len(family) :].lower()
        if end.isalpha() and SequenceMatcher(None, end, known_end).ratio() >= _ALIKE:
            return known_name
    return next((one for one in sorted(names) if _is_swapped(name, one)), "")


def _is_swapped(name: str, other: str) -> bool:
    """Whether one name is the other with two letters swapped."""
    return sorted(name) == sorted(other) and is_slip(name, other)
