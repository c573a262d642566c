"""Optimizer states and parameters kept off the GPU: in the host's memory, on NVMe, by ZenFlow."""

from __future__ import annotations

from typing import Final

from ....findings import ERROR, NOTE, WARNING, Violation, Violations
from ....rules.violations import deepspeed, deepspeed_0_19_8, derived, violation
from ..config import OPTIMIZER, PARAMS, ZERO, Config, Offloaded, whole_of
from .subjects import (
    Run,
    configs,
    optimizer_from_config,
    runs,
    shown,
    steps_by_torch,
    to_remove,
    unused,
    while_on,
)

_STATES: Final = f"{ZERO}/offload_optimizer"
_PARAM: Final = f"{ZERO}/offload_param"
#: What can be offloaded, with the pointer of its block.
_OFFLOADS: Final[tuple[tuple[Offloaded, str], ...]] = (("optimizer", _STATES), ("param", _PARAM))
_TORCH_ADAM: Final = "/optimizer/params/torch_adam"
#: Keys of an offload that are for NVMe only.
_NVME_ONLY: Final = {
    _STATES: ("nvme_path", "buffer_count", "pipeline_read", "pipeline_write", "fast_init"),
    _PARAM: ("nvme_path", "buffer_count", "buffer_size", "max_in_cpu"),
}
_ZENFLOW: Final = f"{ZERO}/zenflow"
_SELECT: Final = f"{_ZENFLOW}/select_interval"
_UPDATE: Final = f"{_ZENFLOW}/update_interval"
_STRATEGY: Final = f"{_ZENFLOW}/select_strategy"
_ZENFLOW_SOURCES: Final = "runtime/zenflow"
_BELOW_3_PY: Final = f"{_ZENFLOW_SOURCES}/zenflow_stage_1_and_2.py"
_SUPEROFFLOAD_PY: Final = "runtime/superoffload/superoffload_stage3.py:59"
_SWAPPED: Final = "runtime/zero/partition_parameters.py:1229; runtime/zero/stage3.py:840"
_UNCHECKED: Final = (
    "runtime/swap_tensor/aio_config.py:20 of DeepSpeed 0.19.8 hands them "
    "unchecked to a C++ constructor"
)
#: Parameters of DeepSpeed's Adams that torch's AdamW doesn't have.
_DEEPSPEEDS_OWN: Final = (
    "adam_w_mode",
    "torch_adam",
    "bias_correction",
    "fp32_optimizer_states",
    "set_grad_none",
)


@configs.rule("ZERO006", ERROR, "silent", deepspeed("runtime/engine.py:2502"))
def parameters_leave_at_stage_3(config: Config) -> Violations:
    """Parameters are offloaded at stage 3, where ZeRO shards them: at a lower stage the key has no
    effect.
    Prevents: Parameters silently stay on the GPU: out of memory where the plan fits.
    Fix: use stage 3
    """
    if config.stage in (0, 1, 2) and config.offloads("param"):
        key = "offload_param" if config.has(_PARAM) else "cpu_offload_param"
        message = f"{key} to {config.offload('param')} has no effect at stage {config.stage}:"
        where, hint = config.locate_key(f"{ZERO}/{key}"), f"use stage 3, or remove {key}"
        yield Violation(where, f"{message} parameters stay on the GPU", hint)


@configs.rule("ZERO043", ERROR, "silent", deepspeed_0_19_8("runtime/engine.py:2313"))
def offload_starts_at_stage_1(config: Config) -> Violations:
    """The optimizer is offloaded from stage 1 on: offload is a part of ZeRO.
    Prevents: Optimizer states silently stay on the GPU.
    Fix: use stage 1, 2 or 3"""
    if config.stage == 0 and config.offloads("optimizer"):
        key = "offload_optimizer" if config.has(_STATES) else "cpu_offload"
        message = (
            f"{key} to {config.offload('optimizer')} has no effect at stage 0: optimizer "
            "states stay on the GPU"
        )
        yield Violation(
            config.locate_key(f"{ZERO}/{key}"), message, f"use stage 1, 2 or 3, or remove {key}"
        )


@configs.rule("ZERO012", NOTE, "init", deepspeed_0_19_8("runtime/engine.py:2344"))
def scripts_bring_cpu_adam(config: Config) -> Violations:
    """An optimizer that the script builds for offload is DeepSpeedCPUAdam or DeepSpeedCPULion.
    Prevents: `You are using ZeRO-Offload with a client provided optimizer`
    Fix: add an optimizer block, build DeepSpeedCPUAdam, or set zero_force_ds_cpu_optimizer to false
    """
    forced = config.switch("/zero_force_ds_cpu_optimizer") is not False
    offloaded = config.stage and config.offloads("optimizer")
    if config.consumer == "deepspeed" and offloaded and forced and not config.has("/optimizer"):
        message = (
            "the optimizer is offloaded and the config has none: DeepSpeed refuses one "
            "that the script builds"
        )
        message += " unless it is DeepSpeedCPUAdam or DeepSpeedCPULion"
        hint = 'add an optimizer block, or set "zero_force_ds_cpu_optimizer" to false'
        where = config.locate_key(_STATES if config.has(_STATES) else f"{ZERO}/cpu_offload")
        yield Violation(where, message, hint)


@optimizer_from_config.rule(
    "ZERO013",
    WARNING,
    "silent",
    deepspeed_0_19_8("runtime/engine.py:2376; ops/adam/cpu_adam.py:30"),
)
def offloaded_adam_is_deepspeeds(config: Config) -> Violations:
    """Offloaded states are stepped by DeepSpeedCPUAdam, not by torch's Adam.
    Prevents: A slow step on the CPU.
    Fix: remove torch_adam"""
    # for those who "understand the performance impacts", as DeepSpeed's error says of this key
    is_meant = config.switch("/zero_force_ds_cpu_optimizer") is False
    if config.stage and config.offloads("optimizer") and steps_by_torch(config) and not is_meant:
        message = (
            "torch_adam: true steps the offloaded states with torch's Adam, which is "
            "several times slower"
        )
        yield to_remove(config, _TORCH_ADAM, message)


@optimizer_from_config.rule(
    "ZERO044",
    ERROR,
    "training",
    deepspeed_0_19_8("runtime/engine.py:2501; ops/lamb/fused_lamb.py:53"),
)
def offloaded_optimizers_run_on_the_host(config: Config) -> Violations:
    """An offloaded optimizer has a CPU version: LAMB's kernel is CUDA's.
    Prevents: A CUDA kernel gets tensors of the CPU.
    Fix: use AdamW, Adagrad or Lion"""
    if config.stage and config.offloads("optimizer") and config.optimizer == "lamb":
        message = (
            f"optimizer {shown(config.value(OPTIMIZER))} is offloaded, but its "
            "kernel runs on GPUs only"
        )
        yield violation(config, OPTIMIZER, message, "use AdamW, Adagrad or Lion")


@optimizer_from_config.rule(
    "ZERO049", ERROR, "init", deepspeed_0_19_8("runtime/zero/stage3.py:316")
)
def partial_offload_steps_adam(config: Config) -> Violations:
    """With a ratio below 1 the optimizer is Adam: DeepSpeedCPUAdam and torch's AdamW share the
    step.
    Prevents: `Hybrid Optimizer Only Supports DeepSpeedCPUAdam`
    Fix: use AdamW, or ratio 1
    """
    if config.stage != 3 or not config.offloads("optimizer") or config.optimizer is None:
        return
    pointer = f"{_STATES}/ratio"
    ratio = config.number(pointer)
    is_torchs = bool(config.switch(_TORCH_ADAM))
    is_refused = is_torchs or config.optimizer not in ("adam", "adamw")
    if ratio is not None and ratio < 1 and is_refused:
        optimizer = "torch_adam" if is_torchs else shown(config.value(OPTIMIZER))
        message = (
            f"ratio: {shown(ratio)} offloads a part, which only DeepSpeedCPUAdam can: the "
            f"optimizer is {optimizer}"
        )
        hint = 'set "ratio" to 1.0, or "type" to "AdamW"'
        yield violation(config, pointer, message, hint)


@configs.rule(
    "ZERO053", WARNING, "silent", deepspeed_0_19_8("runtime/engine.py:2755"), since=(0, 18, 0)
)
def superchips_offload_at_stage_3(config: Config) -> Violations:
    """super_offload is used at stage 3: at a lower stage it has no effect.
    Prevents: The usual offload silently runs in place of the fast one.
    Fix: use stage 3"""
    if config.stage in (0, 1, 2):
        effect = f"has no effect at stage {config.stage}: the usual offload runs"
        yield from while_on(
            config, f"{_STATES}/super_offload", effect, "use stage 3, or remove super_offload"
        )


@configs.rule("ZERO054", NOTE, "silent", deepspeed_0_19_8(_SUPEROFFLOAD_PY), since=(0, 18, 0))
def cores_are_for_super_offload(config: Config) -> Violations:
    """cpuadam_cores_perc is written with super_offload.
    Prevents: The setting silently has no effect.
    Fix: remove it"""
    if config.switch(f"{_STATES}/super_offload") is False:
        yield from unused(config, (f"{_STATES}/cpuadam_cores_perc",), "without super_offload")


@configs.rule("ZERO055", NOTE, "silent", deepspeed_0_19_8("runtime/zero/offload_config.py:44"))
def offload_is_pinned(config: Config) -> Violations:
    """Offload copies from pinned memory: other copies don't overlap computation.
    Prevents: copies between host and GPU at a fraction of the link's rate
    Fix: set pin_memory to true"""
    for what, block in _OFFLOADS:
        pointer = f"{block}/pin_memory"
        is_offloaded = config.has(block) and config.offloads(what)
        if is_offloaded and config.switch(pointer) is False:
            default = "" if config.has(pointer) else ", the default"
            message = (
                f"pin_memory: false{default}: copies of offload_{what} are slower "
                "and overlap nothing"
            )
            hint = 'set "pin_memory" to true where memory can be locked'
            yield violation(config, pointer, message, hint)


@configs.rule("ZERO008", ERROR, "init", deepspeed_0_19_8(_SWAPPED))
def nvme_has_a_path(config: Config) -> Violations:
    """Offload to NVMe has an nvme_path.
    Prevents: an assertion, or a TypeError where the path is joined
    Fix: add "nvme_path" """
    for what, pointer in _OFFLOADS:
        path = config.value(f"{pointer}/nvme_path")
        if config.stage == 3 and config.offload(what) == "nvme" and path in (None, ""):
            message = f"offload_{what} to nvme has no nvme_path"
            hint = 'add "nvme_path": a folder on a local disk'
            yield violation(config, f"{pointer}/device", message, hint)


@configs.rule("ZERO009", WARNING, "silent", deepspeed_0_19_8("runtime/zero/stage_1_and_2.py:219"))
def nvme_is_for_stage_3(config: Config) -> Violations:
    """The optimizer is offloaded to NVMe at stage 3: at stages 1 and 2 it silently goes to the
    CPU's memory.
    Prevents: The node's memory fills in place of the disk.
    Fix: use stage 3, or cpu
    """
    if config.stage in (1, 2) and config.offload("optimizer") == "nvme":
        message = (
            f"offload_optimizer to nvme at stage {config.stage} silently goes to the node's memory"
        )
        yield violation(config, f"{_STATES}/device", message, 'use stage 3, or "device": "cpu"')


@configs.rule(
    "ZERO050",
    NOTE,
    "silent",
    deepspeed_0_19_8("runtime/zero/stage3.py:839; runtime/zero/stage3.py:1129"),
)
def nvme_keys_are_for_nvme(config: Config) -> Violations:
    """Keys of the swap to NVMe are written where something is offloaded to NVMe.
    Prevents: The settings silently have no effect.
    Fix: remove them"""
    for what, block in _OFFLOADS:
        device = config.offload(what)
        if device in ("cpu", "none") and config.block(block):
            pointers = [f"{block}/{name}" for name in _NVME_ONLY[block]]
            # 0, false and null ask for nothing
            asked_for = [pointer for pointer in pointers if config.value(pointer)]
            yield from unused(config, asked_for, f"with device: {device}")


@configs.rule("ZERO051", NOTE, "silent", deepspeed_0_19_8("runtime/engine.py:2781"))
def aio_is_for_nvme(config: Config) -> Violations:
    """The aio block is written where something is offloaded to NVMe, whose reads and writes it
    tunes.
    Prevents: The settings silently have no effect.
    Fix: remove the block
    """
    if config.block("/aio") and not config.may_swap():
        message = "aio has no effect: nothing is offloaded to nvme"
        hint = 'remove aio, or use "device": "nvme"'
        yield to_remove(config, "/aio", message, hint, at_key=True)


@configs.where(Config.may_swap).rule("ZERO052", ERROR, "init", derived(_UNCHECKED))
def aio_counts_are_positive(config: Config) -> Violations:
    """Sizes and counts of aio are integers greater than 0.
    Prevents: a TypeError in a C++ constructor, or reads that never end
    Fix: write an integer greater than 0"""
    for pointer in ("/aio/block_size", "/aio/queue_depth", "/aio/intra_op_parallelism"):
        value, key = config.value(pointer), config.schema.key(pointer)
        if key is None or value in (None, "auto"):
            continue
        # DeepSpeed itself reads with hjson, to which 1e6 is an integer; others' json makes a float
        is_integer = isinstance(value, int) or config.consumer == "deepspeed"
        is_positive = not isinstance(value, bool) and (whole_of(value) or 0) > 0
        if not is_integer or not is_positive:
            message = f"aio {key.name} must be an integer greater than 0, not {shown(value)}"
            yield violation(config, pointer, message, f"write {key.default}, the default")


@runs.rule(
    "ZERO064",
    ERROR,
    "training",
    deepspeed_0_19_8("runtime/swap_tensor/partitioned_param_swapper.py:194"),
)
def buffers_hold_a_parameter(run: Run) -> Violations:
    """buffer_size of offload_param to NVMe is at least a rank's part of the model's largest
    parameter.
    Prevents: a RuntimeError when the parameter is read, or one that overwrites its neighbour
    Fix: set buffer_size to the largest parameter's part on a rank
    """
    config, model, world = run.config, run.submission.model, run.world
    if not model or not world.replicas or config.stage != 3 or config.offload("param") != "nvme":
        return
    pointer = f"{_PARAM}/buffer_size"
    size = config.whole(pointer)
    embedding = model.vocab * (model.embedding_width or model.hidden) // world.tensor
    part = -(-embedding // (world.replicas * world.context))  # rounded up
    if size is not None and part > size:
        default = "" if config.has(pointer) else ", the default,"
        message = (
            f"buffer_size: {size}{default} is less than the {part} elements of "
            f"{model.name}'s embedding on a rank"
        )
        yield violation(config, pointer, message, f"set buffer_size to {part} or more")


#: The configs that use ZenFlow.
_zenflows: Final = configs.where(
    lambda config: isinstance(config.value(_ZENFLOW), dict) and config.stage
)
_zenflows_below_stage_3: Final = _zenflows.where(lambda config: config.stage in (1, 2))


@_zenflows_below_stage_3.rule(
    "ZERO057", ERROR, "init", deepspeed_0_19_8(f"{_BELOW_3_PY}:116"), since=(0, 17, 6)
)
def zenflow_offloads(config: Config) -> Violations:
    """ZenFlow at stages 1 and 2 offloads the optimizer.
    Prevents: `Zenflow must be used with cpu offload`
    Fix: offload the optimizer"""
    if config.offload("optimizer") == "none":
        message = "zenflow requires offload_optimizer"
        hint = 'add "offload_optimizer": {"device": "cpu"}'
        yield Violation(config.locate_key(_ZENFLOW), message, hint)


@_zenflows.rule(
    "ZERO058", ERROR, "init", deepspeed_0_19_8("runtime/zenflow/engine.py:37"), since=(0, 17, 6)
)
def zenflow_selects_one_way(config: Config) -> Violations:
    """select_interval is a number with the strategies step and epoch, and is left out with auto.
    Prevents: a Warning raised as an error, or `select_interval must be a number`
    Fix: write a strategy with its interval, or neither"""
    strategy, interval = config.value(_STRATEGY, "auto"), config.value(_SELECT, "auto")
    where = config.locate(_SELECT)
    if strategy == "auto" and isinstance(interval, int) and not isinstance(interval, bool):
        message = (
            f'select_interval: {interval} is refused with select_strategy: "auto", which decides it'
        )
        yield Violation(where, message, 'set select_strategy to "step" or "epoch"')
    elif strategy in ("step", "epoch") and interval == "auto":
        message = f'select_strategy: "{strategy}" requires a select_interval that is a number'
        yield Violation(where, message, "write a number of steps or epochs")


@_zenflows.rule(
    "ZERO059", ERROR, "init", deepspeed_0_19_8("runtime/zenflow/engine.py:62"), since=(0, 17, 6)
)
def zenflow_selects_seldom(config: Config) -> Violations:
    """ZenFlow's select_interval is at least its update_interval.
    Prevents: `Select interval must be greater or equal to update interval`
    Fix: use a longer select_interval"""
    select, update = config.whole(_SELECT), config.whole(_UPDATE)
    if config.value(_STRATEGY) == "step" and select and update and select < update:
        message = f"select_interval: {select} is less than update_interval: {update}"
        yield violation(config, _SELECT, message, f"set select_interval to {update} or more")


@_zenflows.rule(
    "ZERO060",
    ERROR,
    "init",
    deepspeed_0_19_8(f"{_BELOW_3_PY}:76; {_ZENFLOW_SOURCES}/engine_stage3.py:101"),
    since=(0, 17, 6),
)
def zenflow_offload_overlaps(config: Config) -> Violations:
    """ZenFlow's own offload is used with overlap_comm.
    Prevents: `offload selective optimizer should be used with overlap_comm`
    Fix: set overlap_comm to true"""
    overlap = f"{ZERO}/overlap_comm"
    if config.switch(f"{_ZENFLOW}/offload") and config.switch(overlap) is False:
        default = "" if config.has(overlap) else ", which is its default at this stage"
        message = f"zenflow offload: true is refused with overlap_comm: false{default}"
        yield violation(config, f"{_ZENFLOW}/offload", message, 'set "overlap_comm" to true')


@_zenflows.rule(
    "ZERO061", ERROR, "silent", deepspeed_0_19_8("runtime/zenflow/engine.py:69"), since=(0, 17, 6)
)
def zenflow_accumulates_by_its_interval(config: Config) -> Violations:
    """With ZenFlow gradient_accumulation_steps is 1, or update_interval, which replaces it.
    Prevents: The optimizer silently steps at another interval than the one written.
    Fix: set gradient_accumulation_steps to 1"""
    pointer = "/gradient_accumulation_steps"
    steps, update = config.whole(pointer), config.value(_UPDATE, "auto")
    if steps is not None and steps > 1 and update != steps:
        message = (
            f"gradient_accumulation_steps: {steps} is replaced by zenflow's "
            f"update_interval: {shown(update)}"
        )
        hint = "set gradient_accumulation_steps to 1, with a larger micro batch or a smaller batch"
        yield violation(config, pointer, message, hint)


@_zenflows_below_stage_3.rule(
    "ZERO062", ERROR, "init", deepspeed_0_19_8(f"{_BELOW_3_PY}:84"), since=(0, 17, 6)
)
def zenflow_has_params(config: Config) -> Violations:
    """With ZenFlow at stages 1 and 2 the optimizer has params, of which ZenFlow builds its own
    AdamW.
    Prevents: `TypeError: argument after ** must be a mapping, not NoneType`
    Fix: add an optimizer block with params
    """
    if not isinstance(config.value(PARAMS), dict):
        message = (
            "zenflow builds its own AdamW from the optimizer's params, but the config has none"
        )
        hint = 'add "optimizer": {"type": "AdamW", "params": {"lr": ...}}'
        yield Violation(config.locate_key(_ZENFLOW), message, hint)


@_zenflows_below_stage_3.rule(
    "ZERO063", ERROR, "init", deepspeed_0_19_8(f"{_BELOW_3_PY}:84"), since=(0, 17, 6)
)
def zenflow_params_are_torchs(config: Config) -> Violations:
    """With ZenFlow at stages 1 and 2 the optimizer's params are ones of torch's AdamW, to which
    they are passed.
    Prevents: `TypeError: AdamW.__init__() got an unexpected keyword argument`
    Fix: use parameters of torch's AdamW
    """
    for key in _DEEPSPEEDS_OWN:
        pointer = f"{PARAMS}/{key}"
        if config.has(pointer):
            message = (
                f"unknown parameter {key} of torch's AdamW, which zenflow builds: "
                "its constructor raises"
            )
            yield to_remove(config, pointer, message, at_key=True)
