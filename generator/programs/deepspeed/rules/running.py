"""Rules on what runs beside training: checkpointing, profilers, monitors, logs, DeepCompile."""

from __future__ import annotations

import math
from typing import Final

from ....findings import ERROR, NOTE, WARNING, Severity, Violation, Violations
from ....rules.violations import deepspeed, deepspeed_0_19_8, derived, violation
from ...python_around import tells, trains_transformers
from ..config import Config
from .subjects import (
    Run,
    configs,
    counted_from_1,
    refused_with,
    runs,
    setting,
    shown,
    unused,
    while_on,
)

_PRINTED: Final = "/steps_per_print"
_ACT: Final = "/activation_checkpointing"
_CONTIGUOUS: Final = f"{_ACT}/contiguous_memory_optimization"
_PARTITIONED: Final = f"{_ACT}/partition_activations"
_COUNT: Final = f"{_ACT}/number_checkpoints"
_DEEPSPEEDS: Final = "runtime/activation_checkpointing/checkpointing.py"


@configs.rule(
    "OPT015", WARNING, "silent", derived("engine.py:3554 of DeepSpeed 0.19.8 takes its remainder")
)
def steps_are_counted(config: Config) -> Violations:
    """steps_per_print is an integer.
    Prevents: Progress printed at other steps than intended, or a TypeError: Infinity in a file is
    text to hjson.
    Fix: write an integer
    """
    where, steps = config.locate(_PRINTED), config.number(_PRINTED)
    if is_endless(config):
        message = "steps_per_print: Infinity is never reached, so progress is never printed"
        severity = None
        if config.consumer == "deepspeed":  # it reads the file; from a dict Infinity is a float
            message = (
                "steps_per_print: Infinity is text to hjson, with which DeepSpeed reads "
                "its config: TypeError"
            )
            severity = Severity.ERROR
        yield Violation(where, message, "write null for never", severity=severity)
    elif isinstance(steps, float):
        message = f"{setting(config, _PRINTED)} is a float, not an integer"
        hint = f"set steps_per_print to {max(1, int(steps))}"
        has_same_remainders = steps.is_integer() and steps > 0
        severity = NOTE if has_same_remainders else None
        yield Violation(where, message, hint, severity=severity)


def is_endless(config: Config) -> bool:
    """Whether steps_per_print is unquoted Infinity: a float to `json`, text to hjson."""
    data = config.json.json_data
    steps = data.get("steps_per_print") if isinstance(data, dict) else None
    return isinstance(steps, float) and not math.isfinite(steps)


@configs.rule("OPT039", ERROR, "training", deepspeed_0_19_8("runtime/engine.py:3554"))
def steps_are_not_zero(config: Config) -> Violations:
    """steps_per_print is not 0: the first step divides by it.
    Prevents: `ZeroDivisionError` at the first step
    Fix: write null for never"""
    if config.number(_PRINTED) == 0:
        message = f"{setting(config, _PRINTED)} is a division by zero at the first step"
        yield violation(config, _PRINTED, message, "write null for never, or 100")


@configs.rule("MON001", NOTE, "silent", deepspeed_0_19_8("runtime/engine.py:3552"))
def every_step_is_not_printed(config: Config) -> Violations:
    """Progress is not printed at every step.
    Prevents: A log of as many lines as steps.
    Fix: write a larger number"""
    if config.read(_PRINTED) == 1 and config.value(_PRINTED) is not True:
        message = "steps_per_print: 1 logs a line at every step"
        yield violation(config, _PRINTED, message, "write 100, or null for never")


@configs.rule("MON002", NOTE, "silent", deepspeed_0_19_8("runtime/config.py:533"))
def profilers_run_once(config: Config) -> Violations:
    """The flops profiler is off in production: it times, and so synchronizes, every step, not just
    its own.
    Prevents: Every step of the job waits for its timers.
    Fix: disable it after the profile
    """
    step = shown(config.value("/flops_profiler/profile_step", 1))
    effect = f"it profiles step {step}, and turns wall_clock_breakdown on for all steps"
    hint = 'set "enabled" to false after the profile'
    yield from while_on(config, "/flops_profiler/enabled", effect, hint)


@configs.rule("MON003", NOTE, "silent", deepspeed_0_19_8("runtime/engine.py:714"))
def steps_are_not_timed(config: Config) -> Violations:
    """Neither wall_clock_breakdown nor memory_breakdown is on in production.
    Prevents: Steps that wait for their own measurement.
    Fix: set them to false"""
    if not config.switch("/flops_profiler/enabled"):  # which turns the first on (MON002)
        effect = "makes the host wait for the GPU several times a step"
        yield from while_on(config, "/wall_clock_breakdown", effect)
    effect = "logs the memory's state at every stage of every step"
    yield from while_on(config, "/memory_breakdown", effect)


@configs.rule("MON004", WARNING, "silent", deepspeed_0_19_8("comm/comm.py:131"))
def collectives_are_not_timed(config: Config) -> Violations:
    """The log of communication is off in production: it waits for every collective.
    Prevents: Communication that no longer overlaps computation.
    Fix: disable it in production"""
    if config.switch("/comms_logger/prof_all") is not False:
        effect = "every collective is waited for, so nothing overlaps"
        yield from while_on(config, "/comms_logger/enabled", effect)


@configs.rule("MON005", NOTE, "launcher", deepspeed_0_19_8("autotuning/config.py"))
def tuning_is_over(config: Config) -> Violations:
    """Autotuning is off in a job that trains.
    Prevents: A job that searches where it should train.
    Fix: disable it in production"""
    effect = "started by the deepspeed launcher with --autotuning, the job tunes first"
    hint = 'set "enabled" to false when tuning is done'
    yield from while_on(config, "/autotuning/enabled", effect, hint)


@configs.rule("MON006", WARNING, "silent", deepspeed_0_19_8("monitor/config.py"))
def monitors_are_switched_on(config: Config) -> Violations:
    """A monitor with settings is enabled.
    Prevents: Nothing is logged.
    Fix: set enabled to true"""
    for name in ("tensorboard", "wandb", "csv_monitor", "comet"):
        if config.block(f"/{name}") and not config.has(f"/{name}/enabled"):
            message = f"{name} has settings but is not enabled, so nothing is logged"
            yield Violation(config.locate_key(f"/{name}"), message, 'add "enabled": true')


@configs.rule("MON008", NOTE, "silent", deepspeed_0_19_8("__init__.py:556"))
def engines_train(config: Config) -> Violations:
    """The hybrid engine is used for RLHF only, which generates between its steps.
    Prevents: Another engine than the one for training.
    Fix: disable it unless the job generates"""
    effect = "it keeps inference kernels for generation, which only RLHF needs"
    hint = 'set "enabled" to false unless the job generates'
    yield from while_on(config, "/hybrid_engine/enabled", effect, hint)


@configs.rule("MON009", NOTE, "training", deepspeed_0_19_8("runtime/engine.py:4435"))
def universal_checkpoints_are_meant(config: Config) -> Violations:
    """checkpoint.load_universal is on only where a universal checkpoint is loaded.
    Prevents: `Invalid for universal checkpoint` when a job resumes from its own checkpoint
    Fix: disable it after the converted checkpoint is loaded"""
    effect = "loads only converted checkpoints, and those that this job saves are not"
    hint = "set it to false after the first resume"
    yield from while_on(config, "/checkpoint/load_universal", effect, hint)


@runs.rule("MON010", NOTE, "silent", deepspeed_0_19_8("runtime/engine.py:1905"))
def node_local_checkpoints_are_gathered(run: Run) -> Violations:
    """Checkpoints of several nodes are not saved to node-local storage.
    Prevents: Parts of a checkpoint on disks that the next job may not have.
    Fix: use a shared file system"""
    nodes = run.world.nodes or 1
    if nodes > 1:
        effect = f"spreads a checkpoint over the disks of {nodes} nodes"
        yield from while_on(run.config, "/checkpoint/use_node_local_storage", effect)


#: The configs with contiguous checkpoints; Megatron's arguments go before the block.
_contiguous: Final = runs.where(
    lambda run: not run.submission.has("Megatron arguments") and run.config.switch(_CONTIGUOUS)
)


@_contiguous.rule("ACT001", ERROR, "init", deepspeed(f"{_DEEPSPEEDS}:1239"))
def contiguous_checkpoints_are_partitioned(run: Run) -> Violations:
    """contiguous_memory_optimization is used with partition_activations.
    Prevents: `Contiguous Checkpointing is only available with partitioned activations`. A note
    under the Trainer.
    Fix: enable both, or neither
    """
    if run.config.switch(_PARTITIONED) is False:
        message = "contiguous_memory_optimization: true requires partition_activations: true"
        hint = "enable both, or neither"
        severity = NOTE if run.config.filled else None  # Transformers' models don't call it
        yield violation(run.config, _CONTIGUOUS, message, hint, severity=severity)


@_contiguous.rule("ACT002", NOTE, "init", deepspeed(f"{_DEEPSPEEDS}:1241"))
def contiguous_checkpoints_are_counted(run: Run) -> Violations:
    """contiguous_memory_optimization is used with number_checkpoints.
    Prevents: `Must specify the number of layers with contiguous memory checkpointing`
    Fix: add number_checkpoints"""
    if run.config.value(_COUNT) is None:
        message = (
            "contiguous_memory_optimization: true requires number_checkpoints, unless "
            "the script passes it"
        )
        layers = run.submission.model.layers if run.submission.model else "the number of layers"
        yield violation(run.config, _CONTIGUOUS, message, f'add "number_checkpoints": {layers}')


@runs.rule(
    "ACT003",
    WARNING,
    "silent",
    derived("a checkpoint is split among the ranks of its tensor parallel group"),
)
def partitions_have_tensor_ranks(run: Run) -> Violations:
    """partition_activations is used with tensor parallelism: it spreads checkpoints over tensor
    ranks.
    Prevents: The setting silently has no effect.
    Fix: remove it
    """
    of_megatron = run.submission.has("Megatron arguments") and not run.config.filled
    if of_megatron and run.world.tensor == 1:
        effect = "has no effect: there is one tensor rank"
        yield from while_on(run.config, _PARTITIONED, effect, "set it to false")


@runs.rule(
    "ACT005", WARNING, "silent", derived("Transformers' models call torch.utils.checkpoint only")
)
def trainers_checkpoint_by_themselves(run: Run) -> Violations:
    """Hugging Face models checkpoint activations by gradient_checkpointing, not by DeepSpeed's
    block.
    Prevents: Nothing is checkpointed, and memory runs out. A note where the program sets
    gradient_checkpointing.
    Fix: use gradient_checkpointing
    """
    config = run.config
    calls_engine = config.guessed and tells("the engine", config.path)
    may_be_own_model = calls_engine and not tells("Transformers' models", config.path)
    if not config.filled or may_be_own_model:
        return
    keys = ("partition_activations", "cpu_checkpointing")
    on = ", ".join(key for key in keys if config.switch(f"{_ACT}/{key}"))
    arguments = run.submission.of_kind("training arguments")
    if not on or any(each.value("gradient_checkpointing") for each in arguments):
        return
    # The model may be of another program than the one that makes the engine.
    is_of_transformers = not calls_engine or trains_transformers(config.path)
    if not is_of_transformers and tells("DeepSpeed's checkpointing", config.path):
        return
    reason = (
        "Transformers' models don't call it"
        if is_of_transformers
        else "nothing here calls deepspeed.checkpointing"
    )
    message = f"activation_checkpointing ({on}) has no effect: {reason}"
    if tells("checkpointing by itself", config.path):
        hint = "remove it: the program sets gradient_checkpointing"
        yield Violation(config.locate_key(_ACT), message, hint, severity=NOTE)
        return
    if not is_of_transformers:
        hint = "checkpoint by torch.utils.checkpoint, or call deepspeed.checkpointing"
    elif calls_engine and not arguments and not tells("the Trainer", config.path):
        hint = "call gradient_checkpointing_enable() of the model"  # in a loop of its own
    else:
        hint = "set gradient_checkpointing: true in TrainingArguments"
    yield Violation(config.locate_key(_ACT), message, hint)


@configs.rule("ACT008", NOTE, "silent", deepspeed_0_19_8(f"{_DEEPSPEEDS}:1186"))
def checkpointing_is_not_profiled(config: Config) -> Violations:
    """Checkpointing is neither timed nor synchronized in production.
    Prevents: Steps that wait for their own measurement.
    Fix: set them to false"""
    effect = "makes the host wait for the GPU at every checkpoint"
    for key in ("profile", "synchronize_checkpoint_boundary"):
        yield from while_on(config, f"{_ACT}/{key}", effect)


@configs.rule(
    "ACT009", ERROR, "training", derived("a buffer's size is divided among so many checkpoints")
)
def checkpoints_are_counted_from_1(config: Config) -> Violations:
    """number_checkpoints is an integer greater than 0.
    Prevents: Buffers of size 0 at the first checkpoint.
    Fix: write the number of layers"""
    yield from counted_from_1(config, _COUNT, "write the number of layers")


_COMPILE: Final = "/compile"
_SWITCH: Final = f"{_COMPILE}/deepcompile"
_PASSES: Final = f"{_COMPILE}/passes"
_NON_MOE: Final = f"{_COMPILE}/autoep_non_moe"
_OFFLOADS: Final = ("offload_parameters", "offload_opt_states", "offload_activation")
#: The configs with DeepCompile.
_compiled: Final = configs.where(lambda config: config.switch(_SWITCH))


def passes_of(config: Config) -> list[object]:
    """The passes of DeepCompile that a config names."""
    passes = config.value(_PASSES)
    return passes if isinstance(passes, list) else []


@_compiled.rule(
    "CMP002", WARNING, "silent", deepspeed_0_19_8("runtime/engine.py:5802"), since=(0, 17, 6)
)
def deepcompile_has_a_stage(config: Config) -> Violations:
    """DeepCompile, which compiles ZeRO, is used at stage 1, 2 or 3: at stage 0 torch compiles
    alone.
    Prevents: A job that is silently compiled by torch only.
    Fix: use a ZeRO stage
    """
    if config.stage == 0 and not config.has(_PASSES):
        effect = "at ZeRO stage 0 falls back to torch's compiler, which only the log reports"
        yield from while_on(config, _SWITCH, effect, "use stage 1, 2 or 3")


@configs.rule(
    "CMP003", WARNING, "silent", deepspeed_0_19_8("runtime/engine.py:5928"), since=(0, 17, 6)
)
def compile_is_switched_on(config: Config) -> Violations:
    """DeepCompile's settings are written with deepcompile: true.
    Prevents: The settings silently have no effect.
    Fix: set deepcompile to true"""
    if config.switch(_SWITCH) is False and not config.switch(_NON_MOE):
        settings = (
            f"{_COMPILE}/{key}" for key in config.block(_COMPILE) if key in (*_OFFLOADS, "passes")
        )
        asked_for = [each for each in settings if config.value(each) not in (False, None)]
        yield from unused(config, asked_for, "without deepcompile: true")


@_compiled.rule(
    "CMP004", ERROR, "training", deepspeed_0_19_8("compile/init_z3.py:100, :147"), since=(0, 19, 8)
)
def one_thing_is_offloaded(config: Config) -> Violations:
    """DeepCompile at stage 3 offloads one of parameters, optimizer states and activations.
    Prevents: a ValueError when the engine compiles
    Fix: set one of them to true"""
    on = [key for key in _OFFLOADS if config.switch(f"{_COMPILE}/{key}")]
    if config.stage == 3 and len(on) > 1:
        message = f"{' and '.join(on)} are both true, which DeepCompile refuses"
        hint = "set one of them to true"
        yield violation(config, f"{_COMPILE}/{on[1]}", message, hint)


@_compiled.rule(
    "CMP005", ERROR, "training", deepspeed_0_19_8("compile/init_z3.py:93"), since=(0, 19, 8)
)
def one_side_offloads_states(config: Config) -> Violations:
    """Optimizer states are offloaded by DeepCompile or by ZeRO, not both.
    Prevents: a ValueError when the engine compiles
    Fix: remove one of the two"""
    pointer = f"{_COMPILE}/offload_opt_states"
    others = {f"offload_optimizer to {config.offload('optimizer')}": True}
    if config.switch(pointer) and config.stage == 3 and config.offloads("optimizer"):
        yield from refused_with(config, pointer, others, "remove one of the two")


@_compiled.rule(
    "CMP006", ERROR, "training", deepspeed_0_19_8("runtime/engine.py:5842"), since=(0, 19, 8)
)
def autotp_pass_goes_alone(config: Config) -> Violations:
    """The pass autotp runs without the passes of ZeRO and AutoSP.
    Prevents: NotImplementedError when the engine compiles
    Fix: use autotp alone"""
    passes = passes_of(config)
    others = [name for name in ("z1", "z3", "autosp") if name in passes]
    if "autotp" in passes and others:
        message = f"the pass autotp is refused together with {', '.join(others)}"
        yield violation(config, _PASSES, message, 'set passes to ["autotp"]')


@_compiled.rule(
    "CMP007", WARNING, "silent", deepspeed_0_19_8("runtime/engine.py:5770"), since=(0, 18, 9)
)
def autosp_has_a_low_stage(config: Config) -> Violations:
    """The pass autosp runs at ZeRO stages 0 and 1.
    Prevents: Sequence parallelism is silently not applied.
    Fix: use stage 0 or 1"""
    if "autosp" in passes_of(config) and config.stage in (2, 3):
        message = (
            f"the pass autosp at ZeRO stage {config.stage} runs torch's compiler: no "
            "sequence parallelism"
        )
        yield violation(config, _PASSES, message, "use stage 0 or 1")


@configs.rule(
    "CMP008", ERROR, "training", deepspeed_0_19_8("runtime/engine.py:5888"), since=(0, 19, 8)
)
def compiled_parents_go_alone(config: Config) -> Violations:
    """autoep_non_moe runs without DeepCompile, AutoTP, stage 3 and offload.
    Prevents: a ValueError when the engine compiles
    Fix: remove one or the other"""
    if not config.switch(_NON_MOE):
        return
    tensor = config.whole("/tensor_parallel/autotp_size") or 0
    others = {
        "deepcompile": config.switch(_SWITCH),
        f"autotp_size: {tensor}": tensor > 1,
        "ZeRO stage 3": config.stage == 3,
        "offload_optimizer": config.offloads("optimizer"),
        "offload_param": config.offloads("param"),
    }
    yield from refused_with(config, _NON_MOE, others, "remove one or the other")
