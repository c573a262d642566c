"""accelerate configs as accelerate loads them: what stops `accelerate launch`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Final, NamedTuple

from ....catalog import Model
from ....findings import ERROR, NOTE, WARNING, Location, Violation, Violations, against
from ....job.named_models import model_named
from ....patterns import lazy_pattern
from ....rules.violations import (
    accelerate,
    deepspeed,
    derived,
    divisors,
    listed,
    note_if_to_fill,
    suggest,
    violation,
)
from ....submission.subjects import subject, submissions
from ....submission.submission import Submission
from ....text.options import Options
from ....text.wording import counted, show, whole_number
from ...launching.launcher_call import LauncherCall
from ...launching.subjects import accelerate_calls
from ...python_around import is_read_by_program, release_in
from ..accelerate import AccelerateConfig, is_digits
from ..fsdp_config import WAYS, of_accelerate
from ..training_arguments import TrainingArguments


class Accelerated(NamedTuple):
    """An accelerate config of a cluster, with the launch lines that go before it."""

    config: AccelerateConfig
    launches: tuple[LauncherCall, ...]
    submission: Submission

    def overridden(self, *options: str) -> bool:
        """Return whether a launch line has one of these options, or may have it."""
        return any(call.opaque or call.has(*options) for call in self.launches)


@subject("accelerate config", "launch script", "DeepSpeed config")
def clusters(submission: Submission) -> Iterator[Accelerated]:
    """The configs of clusters, not of SageMaker, that could be read to their end."""
    launches = tuple(accelerate_calls(submission))
    for config in submission.of(AccelerateConfig):
        if config.readable and config.value("compute_environment") != "AMAZON_SAGEMAKER":
            yield Accelerated(config, launches, submission)


def _is_for_machines(run: Accelerated) -> bool:
    """Whether a config is for several machines, and is what `accelerate launch` goes by.

    No launch line sets their number, and no program is there that names the file, unless a line
    names it too: such a program reads it, and may set the rest by itself.
    """
    if run.config.machines <= 1 or run.overridden("--num_machines"):
        return False
    links = (link for link in run.submission.references if link.kind == "accelerate config")
    is_on_a_line = any(one is run.config for link in links for one in link.documents)
    return is_on_a_line or not is_read_by_program(run.config.path)


#: Those for several machines, whose number no launch line sets.
groups: Final = clusters.where(
    _is_for_machines,
    "accelerate config",
    "launch script",
)
_LONGEST: Final = 200  # characters of a name


def model_of(submission: Submission, arguments: TrainingArguments | None = None) -> Model | None:
    """The model of the context or the job, else the one that the arguments name."""
    if submission.model is not None:
        return submission.model
    name = arguments.value("model_name_or_path") if arguments is not None else None
    return model_named(name) if isinstance(name, str) and len(name) < _LONGEST else None


#: The keys of a config of a cluster. Source: accelerate commands/config/config_args.py, BaseConfig
#: and ClusterConfig @ 1.15.0; the last two are legacy.
TOP_KEYS: Final = (
    "compute_environment",
    "distributed_type",
    "mixed_precision",
    "use_cpu",
    "debug",
    "num_processes",
    "machine_rank",
    "num_machines",
    "gpu_ids",
    "main_process_ip",
    "main_process_port",
    "rdzv_backend",
    "same_network",
    "main_training_function",
    "enable_cpu_affinity",
    "fp8_config",
    "deepspeed_config",
    "fsdp_config",
    "parallelism_config",
    "megatron_lm_config",
    "mpirun_config",
    "downcast_bf16",
    "tpu_name",
    "tpu_zone",
    "tpu_use_cluster",
    "tpu_use_sudo",
    "command_file",
    "commands",
    "tpu_vm",
    "tpu_env",
    "dynamo_config",
    "fp16",
    "dynamo_backend",
)
#: The first release without the type TPU. Source: accelerate utils/dataclasses.py @ 0.27.2 and
#: 0.28.0 (DistributedType)
_WITHOUT_TPU: Final = (0, 28)
#: Source: accelerate utils/dataclasses.py:625-638.
DISTRIBUTED_TYPES: Final = (
    "NO",
    "MULTI_CPU",
    "MULTI_GPU",
    "MULTI_NPU",
    "MULTI_MLU",
    "MULTI_SDAA",
    "MULTI_MUSA",
    "MULTI_XPU",
    "DEEPSPEED",
    "FSDP",
    "XLA",
    "MEGATRON_LM",
    "MULTI_HPU",
    "MULTI_NEURON",
)
# accelerate utils/dataclasses.py:685-687
ENVIRONMENTS: Final = ("LOCAL_MACHINE", "AMAZON_SAGEMAKER")
PRECISIONS: Final = ("no", "fp8", "fp16", "bf16")  # accelerate utils/dataclasses.py:783-786
_ARGS: Final = "commands/config/config_args.py"
#: Numbers that may be text on one machine: accelerate hands them on. It compares the others.
_PASSED_ON: Final = ("num_processes", "machine_rank")
#: Values for hints.
_USUAL: Final = {"num_machines": "1", "machine_rank": "0", "main_process_port": "29500"}
_MAX_PORT: Final = 65_535  # 16 bits
#: Keys that only older releases have, each with the last release that has it, of those from 0.12.0
#: to 1.15.0. Source: the file above.
_GONE_KEYS: Final = {"ipex_config": "1.12.0", "tp_config": "1.6.0"}
#: Keys of deepspeed_config that people write at the top of the file.
_OF_DEEPSPEED: Final = (
    "zero_stage",
    "gradient_accumulation_steps",
    "gradient_clipping",
    "zero3_init_flag",
    "deepspeed_config_file",
)


@clusters.rule(
    "ACC001", ERROR, "launcher", accelerate("commands/config/config_args.py (from_yaml_file)")
)
def keys_are_known(run: Accelerated) -> Violations:
    """Every key of an accelerate config is one that accelerate has.
    Prevents: ValueError: The config file had unknown keys. A warning where an older release has it.
    Fix: correct the key, or remove it"""
    present = {key for key, _, _ in run.config.entries("")}
    for key, at, _ in run.config.entries(""):
        if key in _GONE_KEYS:
            message = (
                f"accelerate 1.15 has no key {key}, and refuses it; the last release seen with it "
                f"is {_GONE_KEYS[key]}"
            )
            hint = f"remove it, or pin accelerate=={_GONE_KEYS[key]}"
            yield Violation(run.config.locate_key(at), message, hint, severity=WARNING)
        elif key not in TOP_KEYS:
            hint = suggest(key.lower(), TOP_KEYS, "remove it", present)
            if key in _OF_DEEPSPEED:
                hint = f"move {key} into deepspeed_config"
            yield Violation(
                run.config.locate_key(at), f"unknown key {key}: accelerate 1.15 refuses it", hint
            )


@clusters.rule("ACC002", ERROR, "launcher", accelerate(f"{_ARGS} (process_config, __post_init__)"))
def type_is_known(run: Accelerated) -> Violations:
    """distributed_type is there, in capitals, and compute_environment too where it is given.
    Prevents: ValueError: A `distributed_type` must be specified, or: 'x' is not a valid
    DistributedType
    Fix: set distributed_type: DEEPSPEED
    """
    config = run.config
    if not config.has("distributed_type"):
        yield violation(
            config, "", "distributed_type is missing", "add distributed_type: DEEPSPEED"
        )
    for name, choices in (
        ("distributed_type", DISTRIBUTED_TYPES),
        ("compute_environment", ENVIRONMENTS),
    ):
        value = config.value(name)
        if not config.has(name) or value in choices:
            continue
        if name == "distributed_type" and not isinstance(value, str):
            continue  # ACC019 reports it
        if value == "TPU":
            yield from _of_tpus(run)
            continue
        message = f"{name} is {show(value)}, which accelerate doesn't have"
        yield violation(config, name, message, suggest(str(value).upper(), choices))


def _of_tpus(run: Accelerated) -> Violations:
    """A violation where the release has no type TPU any more."""
    release, name = release_in(run.submission, "accelerate", run.config.path), "distributed_type"
    if release.version >= _WITHOUT_TPU:
        message = f"{release} has no distributed_type TPU, which is XLA since 0.28"
        hint = "set distributed_type: XLA"
        severity = None if release.where and release.exact else WARNING
        yield violation(run.config, name, message, hint, severity=severity)


@clusters.rule(
    "ACC019", ERROR, "silent", accelerate("commands/config/config_args.py (__post_init__)")
)
def type_is_text(run: Accelerated) -> Violations:
    """distributed_type is text: 'NO' in quotes, because YAML reads no as false.
    Prevents: No error: one process, whatever num_processes is.
    Fix: write 'NO' in quotes, or DEEPSPEED"""
    name = "distributed_type"
    value, processes = run.config.value(name, "NO"), run.config.value("num_processes")
    if not isinstance(value, str) and processes != 1:
        message = f"distributed_type is {show(value)}, not text: accelerate starts one process only"
        hint = "set distributed_type to 'NO', or to DEEPSPEED"
        yield violation(run.config, name, message, hint)


@clusters.rule(
    "ACC003", ERROR, "launcher", accelerate("utils/launch.py (prepare_deepspeed_cmd_env)")
)
def precision_is_known(run: Accelerated) -> Violations:
    """mixed_precision is 'no', in quotes, fp16, bf16 or fp8.
    Prevents: ValueError: Unknown mixed_precision mode, or AttributeError: 'bool' object has no
    attribute 'lower'
    Fix: use 'no', fp16, bf16 or fp8
    """
    name = "mixed_precision"
    value = run.config.value(name)
    if value is None or run.overridden("--mixed_precision"):
        return
    if isinstance(value, bool):
        message = (
            f"mixed_precision is {show(value)}: YAML reads no as false, and "
            "accelerate requires text"
        )
        yield violation(run.config, name, message, "set mixed_precision to 'no', in quotes")
    elif not isinstance(value, str) or value.lower() not in PRECISIONS:
        message = f"mixed_precision is {show(value)}, which accelerate doesn't have"
        yield violation(run.config, name, message, f"use {listed(PRECISIONS)}")


@clusters.rule("ACC004", ERROR, "launcher", accelerate(f"{_ARGS} (ClusterConfig), utils/launch.py"))
def counts_are_integers(run: Accelerated) -> Violations:
    """num_processes, num_machines, machine_rank and main_process_port are integers in their ranges.
    Prevents: TypeError or ValueError in the launcher.
    Fix: write integers"""
    for key in ("num_processes", "num_machines", "machine_rank", "main_process_port"):
        value, is_port = run.config.value(key), key == "main_process_port"
        is_absent = not run.config.has(key) or (value is None and is_port)
        is_passed_on = run.config.machines == 1 and key in _PASSED_ON and is_digits(value)
        if is_absent or is_passed_on or run.overridden(f"--{key}"):
            continue
        if type(value) is not int:
            message = f"{key} is {show(value)}, not an integer"
            may_be_given = value is None and not run.launches  # by a launch line that isn't here
            severity = NOTE if may_be_given else None
            if value not in DISTRIBUTED_TYPES:  # which look like placeholders in capitals
                severity = note_if_to_fill(value, key, severity)
            usual = str(value) if is_digits(value) else _USUAL.get(key, "8")
            yield violation(run.config, key, message, f"set {key} to {usual}", severity=severity)
        elif is_port and not 0 <= value <= _MAX_PORT:
            message = f"main_process_port is {value}, not a port number"
            yield violation(run.config, key, message, f"use a port from 1024 to {_MAX_PORT}")
        elif key == "num_machines" and value < 1:
            message = f"num_machines is {value}; it must be at least 1"
            yield violation(run.config, key, message, "set num_machines to 1", severity=WARNING)


@clusters.rule(
    "ACC005", ERROR, "launcher", accelerate("commands/launch.py (_validate_launch_command)")
)
def processes_are_counted(run: Accelerated) -> Violations:
    """num_processes is at least 1, in the config or on the launch line.
    Prevents: ValueError: You need to manually pass in `--num_processes` using this config yaml.
    Fix: set num_processes to nodes × GPUs of a node"""
    config = run.config
    is_counted = config.value("distributed_type") not in (None, "NO", "XLA")
    if not is_counted or run.overridden("--num_processes"):
        return
    value, is_absent = config.value("num_processes", -1), not config.has("num_processes")
    if type(value) is int and value < 1:
        message = "num_processes is missing" if is_absent else f"num_processes is {value}"
        hint = (
            "set num_processes to the GPUs of all nodes together, or add "
            "--num_processes to the launch line"
        )
        severity = None if run.launches else NOTE  # a launch line may give it
        name = "" if is_absent else "num_processes"
        yield violation(config, name, message, hint, severity=severity)


@clusters.rule(
    "ACC006", ERROR, "launcher", accelerate("commands/launch.py (_validate_launch_command)")
)
def ids_are_text(run: Accelerated) -> Violations:
    """gpu_ids is text, and has an id for every process of a node.
    Prevents: AttributeError: 'int' object has no attribute 'split', or CUDA error: invalid device
    ordinal. A note where the launch line, which may have another number of processes, isn't there.
    Fix: set gpu_ids: all
    """
    config, value = run.config, run.config.value("gpu_ids")
    if value is None or run.overridden("--gpu_ids"):
        return
    if not isinstance(value, str):
        message = f"gpu_ids is {show(value)}, not text, and accelerate splits it at commas"
        shown = ",".join(map(str, value)) if isinstance(value, list) else value
        yield violation(config, "gpu_ids", message, f"set gpu_ids to '{shown}', or to all")
        return
    if value == "all" or run.overridden("--num_processes", "--num_machines"):
        return
    processes = (config.processes or 0) // max(config.machines, 1)
    ids = len([part for part in value.split(",") if part.strip()])
    if ids < processes:
        message = f"gpu_ids names {ids} GPUs for {processes} processes on a machine"
        hint = f"set gpu_ids to all, or num_processes to {ids * config.machines}"
        yield violation(config, "gpu_ids", message, hint, severity=None if run.launches else NOTE)


#: GPUs by their numbers or identifiers: `0,1`, `GPU-8a5b`. Other text is still to be filled in.
_DEVICES: Final = lazy_pattern(
    r"(?:[0-9]{1,3}|GPU-[\w-]+|MIG-[\w-]+)(?:,(?:[0-9]{1,3}|GPU-[\w-]+|MIG-[\w-]+))*"
)


@clusters.rule("ACC023", ERROR, "init", derived("torch sees the devices that the variable names"))
def visible_devices_are_enough(run: Accelerated) -> Violations:
    """CUDA_VISIBLE_DEVICES of the launch line names a GPU for every process of a machine.
    Prevents: CUDA error: invalid device ordinal, in the processes beyond it
    Fix: name more devices, or set num_processes to their number
    """
    config = run.config
    if config.machines > 1 or run.overridden("--num_machines", "--gpu_ids"):
        return
    for call in run.launches:
        visible = call.launch.environment.get("CUDA_VISIBLE_DEVICES")
        if visible is None or not _DEVICES.fullmatch(visible.value or ""):
            continue
        number = len((visible.value or "").split(","))
        is_on_line = call.has("--num_processes")  # which counts before the config
        processes = call.options.integer("--num_processes") if is_on_line else config.processes
        if not processes or processes <= number or (is_on_line and not _ranks_by_line(run, call)):
            continue
        shown = f"CUDA_VISIBLE_DEVICES names {counted(number, 'GPU')}"
        named = call.launch.script.locate(visible.value_offset)
        name = "--num_processes" if is_on_line else "num_processes"
        hint = f"set {name} to {number}, or name {processes} devices"
        if is_on_line:
            yield Violation(named, f"{shown}, and {name} is {processes}", hint)
        else:
            message = f"{name} is {processes}; {shown}"
            yield against(named, violation(config, name, message, hint))


def _ranks_by_line(run: Accelerated, call: LauncherCall) -> bool:
    """Whether a launch line that counts the processes starts so many on this machine's GPUs.

    The config or the line says that they are several, and neither has them on CPUs or chooses the
    GPUs itself.
    """
    config = run.config
    is_several = config.value("distributed_type") in ("MULTI_GPU", "DEEPSPEED", "FSDP")
    return (
        is_several
        and not call.has("--cpu")
        and config.value("use_cpu") in (None, False)
        and config.value("gpu_ids") in (None, "all")
    )


@clusters.rule(
    "ACC007", ERROR, "launcher", accelerate("commands/launch.py (_validate_launch_command)")
)
def sections_are_mappings(run: Accelerated) -> Violations:
    """deepspeed_config, fsdp_config and the other sections are mappings.
    Prevents: AttributeError: 'str' object has no attribute 'keys', or a section that is silently
    ignored.
    Fix: write a mapping
    """
    for key in (
        "deepspeed_config",
        "fsdp_config",
        "megatron_lm_config",
        "parallelism_config",
        "fp8_config",
    ):
        value, is_deepspeeds = run.config.value(key), key == "deepspeed_config"
        if value is None or isinstance(value, Mapping):
            continue
        message, hint = f"{key} is {show(value)}, not a mapping", "write a mapping, or {}"
        if is_deepspeeds:
            hint = "write a mapping with deepspeed_config_file or zero_stage"
        is_read = is_deepspeeds and run.config.uses_deepspeed
        yield violation(run.config, key, message, hint, severity=None if is_read else WARNING)


SIZES: Final = ("dp_replicate_size", "dp_shard_size", "tp_size", "cp_size", "sp_size")
_SIZES_AT: Final = "parallelism_config"
_USE: Final = "--use_parallelism_config"


class Sizes(NamedTuple):
    """The degrees of one launch, in the order of `SIZES`, 1 where none is set."""

    values: tuple[int, ...]
    where: Location  #: the section, or the line's first option on it
    of_sequence: Location  #: of sp_size
    processes: int | None
    deepspeed: bool  #: whether the launch trains with DeepSpeed
    fsdp: bool  #: whether the launch trains with FSDP

    @property
    def context(self) -> int:
        """cp_size: the ranks of torch's context parallelism."""
        return self.values[SIZES.index("cp_size")]

    @property
    def sequence(self) -> int:
        """sp_size: the ranks of Ulysses."""
        return self.values[SIZES.index("sp_size")]


def _sizes(config: AccelerateConfig | None, line: LauncherCall | None) -> Iterator[Sizes]:
    """The sizes of a launch, by a config, a line or both; none unless all are known.

    A line that chooses how to train has to ask for the mesh, too; else the config's isn't read.
    """
    in_config = config.block(_SIZES_AT) if config is not None else {}
    options = line.options if line is not None else Options()
    line_chooses = line is not None and line.has(*WAYS)
    if line_chooses and not options.has(_USE):
        return
    values, places = [], []
    for key in (f"{_SIZES_AT}_{name}" for name in SIZES):
        option = options.get(f"--{key}")
        if option is not None:
            value = options.integer(f"--{key}")
        else:
            value = whole_number(in_config.get(key, 1))
        if value is None:
            return
        values.append(value)
        if option is not None and line is not None:
            places.append(line.shell.locate(option.written))
        elif config is not None and key in in_config:
            places.append(config.locate(f"{_SIZES_AT}/{key}"))
    if not places or not (in_config or options.has(_USE)):
        return

    # A line goes before the config.
    if config is None or options.has("--num_processes"):
        processes = options.integer("--num_processes")
    else:
        processes = config.processes
    config_uses = config is not None and not line_chooses and config.uses_deepspeed
    yield Sizes(
        values=tuple(values),
        where=config.locate_key(_SIZES_AT) if config is not None and in_config else places[0],
        of_sequence=places[-1],
        processes=processes,
        deepspeed=options.has("--use_deepspeed") or config_uses,
        fsdp=of_accelerate(config, line) is not None,
    )


def config_read_by(
    line: LauncherCall, configs: Sequence[AccelerateConfig]
) -> AccelerateConfig | None:
    """The config that a launch line names, else the only one that there is."""
    name = line.options.text("--config_file")
    if name is not None:
        configs = [
            config for config in configs if PurePath(config.path).name == PurePath(name).name
        ]
    return configs[0] if len(configs) == 1 else None


@subject("accelerate config", "launch script")
def all_sizes(submission: Submission) -> Iterator[Sizes]:
    """The sizes of every launch that has some: the line's go before the config's."""
    runs, lines = list(clusters(submission)), list(accelerate_calls(submission))
    configs = [run.config for run in runs]
    config_of_line = [config_read_by(line, configs) for line in lines]
    for run in runs:
        is_read = any(run.config is config for config in config_of_line)
        has_known_processes = not lines or not run.overridden("--num_processes")
        if has_known_processes and not is_read:
            yield from _sizes(run.config, None)
    for line, config in zip(lines, config_of_line, strict=True):
        options = line.options
        has_all = options.has(_USE) and not options.has("--config_file") and not configs
        if not options.opaque and (config is not None or has_all):
            yield from _sizes(config, line)


@all_sizes.rule("HF017", ERROR, "init", accelerate("parallelism_config.py:329-345,373-380"))
def sizes_multiply_to_the_processes(sizes: Sizes) -> Violations:
    """parallelism_config's sizes multiply to num_processes, and context and sequence parallelism
    exclude each other.
    Prevents: ValueError: ParallelismConfig total_size does not match num_processes
    Fix: choose sizes whose product is num_processes
    """
    product, processes = math.prod(sizes.values), sizes.processes
    replicas, shards, tensor, context, sequence = sizes.values
    text = " × ".join(
        f"{name} {size}" for name, size in zip(SIZES, sizes.values, strict=True) if size != 1
    )
    if min(sizes.values) < 1:
        message, hint = f"{text}: a size must be at least 1", "use 1 for those not used"
    elif context > 1 and sequence > 1:
        message = f"cp_size {context} and sp_size {sequence} exclude each other"
        hint = "set one of them to 1"
    elif max(tensor, context) > 1 and replicas > 1 and shards == 1:
        message = f"{text}: replicas of tensor or context ranks need a dp_shard_size above 1"
        hint = f"use dp_shard_size {replicas}, without replicas"
    elif sequence == 1 and processes and product not in (1, processes):
        message, others = f"{text} = {product} is not num_processes {processes}", product // shards
        hint = f"set num_processes to {product}"
        if processes % others == 0:
            hint = f"use dp_shard_size {processes // others}"
    else:
        return
    yield Violation(sizes.where, message, hint)


@submissions.rule(
    "SP003",
    ERROR,
    "init",
    deepspeed("runtime/sequence_parallel/ulysses_sp.py:145"),
    reads=("accelerate config", "launch script"),
)
def heads_divide(submission: Submission) -> Violations:
    """accelerate's sp_size divides the attention heads, and is a multiple or a divisor of the
    key-value heads.
    Prevents: An assertion when the attention is made.
    Fix: use a size that fits both
    """
    divided = [sizes for sizes in all_sizes(submission) if sizes.sequence >= 2 and sizes.deepspeed]
    if not divided:
        return
    arguments = submission.of(TrainingArguments)
    model = model_of(submission, arguments[0] if len(arguments) == 1 else None)
    if model is None or not model.attentions:
        return
    for sizes in divided:
        size, kv_heads = sizes.sequence, model.kv_heads
        fitting = [
            divisor
            for divisor in divisors(model.heads, limit=64)
            if kv_heads % divisor == 0 or divisor % kv_heads == 0
        ]
        if model.heads % size:
            message = f"sp_size {size} does not divide {model.name}'s {model.heads} attention heads"
        elif kv_heads % size and size % kv_heads:
            message = (
                f"sp_size {size} and {model.name}'s {kv_heads} key-value heads: "
                "neither divides the other"
            )
        else:
            continue
        yield Violation(sizes.of_sequence, message, f"use sp_size {listed(fitting or [1])}")


@accelerate_calls.rule(
    "ACC021", ERROR, "launcher", accelerate("commands/launch.py (_validate_launch_command)")
)
def parallelism_on_the_line_is_fsdps(call: LauncherCall) -> Violations:
    """--use_parallelism_config goes with --use_fsdp and --fsdp_version 2 on a launch line.
    Prevents: ValueError: You cannot use `--use_parallelism_config` without `--use_fsdp` and
    `--fsdp_version=2`.
    Fix: add --use_fsdp --fsdp_version 2, or set the sizes in the config file
    """
    flag, options = call.argument(_USE), call.options
    version = options.integer("--fsdp_version")
    is_unknown = options.has("--fsdp_version") and version is None
    if flag is None or options.opaque or is_unknown:
        return
    is_version_2 = version not in (None, 1)
    if not is_version_2 or not options.has("--use_fsdp"):
        missing = "--use_fsdp" if is_version_2 else "--use_fsdp and --fsdp_version 2"
        hint = (
            "add --use_fsdp --fsdp_version 2, or parallelism_config to the file that "
            "--config_file names"
        )
        yield flag.bad_option(f"{_USE} without {missing}", hint)


#: Flags for ways to train that exclude one another.
_EXCLUSIVE_WAYS: Final = ("--multi_gpu", "--cpu", "--tpu", "--use_deepspeed", "--use_fsdp")


@accelerate_calls.rule(
    "ACC025", ERROR, "launcher", accelerate("commands/launch.py (_validate_launch_command)")
)
def line_trains_in_one_way(call: LauncherCall) -> Violations:
    """A launch line has one of --multi_gpu, --cpu, --tpu, --use_deepspeed and --use_fsdp.
    Prevents: ValueError: You can only use one of `--cpu`, `--multi_gpu`, `--tpu`,
    `--use_deepspeed`, `--use_fsdp` at a time.
    Fix: remove the others
    """
    ways = [way for way in _EXCLUSIVE_WAYS if call.has(way)]
    last = call.argument(ways[-1]) if len(ways) > 1 else None
    if last is not None:
        message = f"{' and '.join(ways)} exclude each other"
        yield last.bad_option(message, f"remove {ways[0]}")
