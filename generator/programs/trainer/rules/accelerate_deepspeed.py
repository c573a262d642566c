"""Rules on accelerate's deepspeed_config, the DeepSpeed config beside it, and the machines."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import PurePosixPath
from typing import Final

from ....findings import ERROR, NOTE, WARNING, Severity, Violation, Violations, against
from ....numerals import is_whole
from ....rules.violations import accelerate, did_you_mean, listed, violation
from ....submission.repository import prepares_no_loader, program_text, texts_of
from ....text.around import folders_above
from ....text.slips import is_slip
from ....text.wording import show, whole_number
from ...deepspeed.submission import named_by, release_of_deepspeed, used_config
from ...launching.launcher_call import LauncherCall
from ...launching.subjects import accelerate_calls
from ...launching.tables import TABLES
from ..accelerate import FALSE, STAGES, TRUE, is_true, number_of_text
from .accelerate import DISTRIBUTED_TYPES, Accelerated, clusters, groups
from .accelerate_keys import KEYS, harm_of, instead_of

_PLUGIN: Final = accelerate("utils/dataclasses.py (DeepSpeedPlugin.__post_init__)")
_STAGE_3: Final = f"{_PLUGIN}; deepspeed/runtime/engine.py reads offload_param at stage 3 only"
_VALIDATED: Final = "commands/launch.py (_validate_launch_command"
_NO_PATH: Final = "(prepare_deepspeed_cmd_env exports no nvme path)"
_SECTION: Final = "deepspeed_config"
_FILE: Final = f"{_SECTION}/deepspeed_config_file"
#: Refused with deepspeed_config_file. Source: accelerate utils/dataclasses.py
#: (_deepspeed_config_checks).
_REFUSED: Final = (
    "gradient_accumulation_steps",
    "gradient_clipping",
    "zero_stage",
    "offload_optimizer_device",
    "offload_param_device",
    "offload_param_nvme_path",
    "zero3_save_16bit_model",
)
#: deepspeed_config_file may be a whole config in base64, which has at least so many characters.
_SHORTEST_BASE64: Final = 60
_DEVICES: Final = ("none", "cpu", "nvme")
#: The configs that have a deepspeed_config.
_sections: Final = clusters.where(lambda run: run.config.deepspeed)


@_sections.rule(
    "ACC008", WARNING, "silent", accelerate(f"{_VALIDATED} sets any key, nothing reads it)")
)
def keys_are_known(run: Accelerated) -> Violations:
    """Every key of deepspeed_config is one that accelerate reads.
    Prevents: No error: the setting has its default. A note where that is what the key says, or the
    right key is there too.
    Fix: correct the key, or remove it"""
    # One finding for all keys that have the same hint, and do the same harm.
    alike = defaultdict[tuple[str, Severity | None], list[tuple[str, str]]](list)
    for key, at, value in run.config.entries(_SECTION):
        if key not in KEYS:
            alike[instead_of(run, key, value), harm_of(run, key, value)].append((key, at))
    for (hint, severity), entries in alike.items():
        keys = ", ".join(key for key, _ in entries)
        message = f"unknown key {keys} in deepspeed_config: accelerate ignores it"
        if len(entries) > 1:
            message = f"unknown keys {keys} in deepspeed_config: accelerate ignores them"
            hint = hint.replace(" it ", " them ")
        _, first_at = entries[0]
        yield Violation(run.config.locate_key(first_at), message, hint, severity=severity)


@clusters.rule(
    "ACC022", ERROR, "silent", accelerate("commands/launch.py (_validate_launch_command)")
)
def sharding_keys_are_known(run: Accelerated) -> Violations:
    """Every key of fsdp_config is one that accelerate has an option for; only a slip of one is
    reported.
    Prevents: No error: the setting has its default, such as no wrapping of layers.
    Fix: correct the key
    """
    options = TABLES["accelerate"].options
    known = [name[2:] for name in options if name.startswith("--fsdp_")]
    for key, at, _ in run.config.entries("fsdp_config"):
        full = str(key) if str(key).startswith("fsdp") else f"fsdp_{key}"
        if f"--{full}" in options:
            continue
        likely = (name for name in known if is_slip(full, name) or is_slip(str(key), name))
        near = next(likely, None)
        if near:
            present = [each for each, _, _ in run.config.entries("fsdp_config")]
            # accelerate reads a key with `fsdp_` or without.
            spellings = (near, near.removeprefix("fsdp_"))
            meant = next((spelling for spelling in spellings if spelling in present), near)
            message = f"unknown key {key} in fsdp_config: accelerate ignores it"
            severity = NOTE if meant in present else None
            hint = did_you_mean(meant, present)
            yield Violation(run.config.locate_key(at), message, hint, severity=severity)


@_sections.rule(
    "HF007",
    ERROR,
    "init",
    accelerate("utils/dataclasses.py (DeepSpeedPlugin._deepspeed_config_checks)"),
)
def one_source_of_settings(run: Accelerated) -> Violations:
    """With deepspeed_config_file there is no zero_stage, mixed_precision or other setting that
    belongs in the file.
    Prevents: ValueError: When using `deepspeed_config_file`, the following accelerate config
    variables ...
    Fix: keep these settings in the JSON only
    """
    config = run.config
    if not config.config_file or not config.uses_deepspeed:
        return
    refused = [key for key in _REFUSED if key in config.deepspeed]
    if refused:
        message = f"{', '.join(refused)} with deepspeed_config_file {config.config_file}"
        where = config.locate_key(f"{_SECTION}/{refused[0]}")
        them = "them" if len(refused) > 1 else "it"
        yield Violation(where, message, f"remove {them}, and set {them} in the JSON")
    key = "mixed_precision"
    if config.value("fp16") and not config.has(key):  # older configs have this flag
        key = "fp16"
    if config.value(key) is not None and not run.overridden("--mixed_precision"):
        message = f"{key} {show(config.value(key))} with deepspeed_config_file"
        hint = "remove it, and set bf16 or fp16 in the JSON"
        yield Violation(config.locate_key(key), message, hint)


def _is_steps(value: object) -> bool:
    """Whether a value is a number of steps, or its text, or "auto"."""
    if value == "auto":
        return True
    number = number_of_text(value)
    if number is None or type(value) is float:
        return False
    return number >= 1 and number.is_integer()


def _among(choices: tuple[object, ...]) -> Callable[[object], bool]:
    """Whether a value is one of the choices, as text in any case."""
    return lambda value: str(value).lower() in map(str, choices)


#: What the values of some keys must be, and the hint where they aren't.
_VALUES: Final[Mapping[str, tuple[Callable[[object], bool], str]]] = {
    "zero_stage": (_among(STAGES), f"use {listed(STAGES)}"),
    "offload_optimizer_device": (_among(_DEVICES), f"use {listed(_DEVICES)}"),
    "offload_param_device": (_among(_DEVICES), f"use {listed(_DEVICES)}"),
    "zero3_init_flag": (_among((*TRUE, *FALSE)), "use true or false"),
    "gradient_accumulation_steps": (_is_steps, "use an integer of at least 1"),
    "gradient_clipping": (
        lambda value: value == "auto" or number_of_text(value) is not None,
        "use a number such as 1.0",
    ),
}


@_sections.rule("ACC009", ERROR, "init", _PLUGIN)
def values_are_deepspeeds(run: Accelerated) -> Violations:
    """zero_stage is 0 to 3, offload devices are none, cpu or nvme, and flags are true or false.
    Prevents: ValueError when the plugin converts it, or DeepSpeed's own error about the config.
    Fix: use a value that DeepSpeed has"""
    for key, (fits, hint) in _VALUES.items():
        value = run.config.deepspeed.get(key)
        if value is not None and not fits(value):
            message = f"{key} is {show(value)}, which DeepSpeed refuses"
            yield violation(run.config, f"{_SECTION}/{key}", message, hint)


@_sections.rule("ACC010", ERROR, "silent", accelerate(f"utils/launch.py {_NO_PATH}"))
def nvme_has_a_path(run: Accelerated) -> Violations:
    """Offloading to nvme has its path in the DeepSpeed config: accelerate does not pass its own on.
    Prevents: No error from accelerate: DeepSpeed swaps into a folder called none of the working
    directory.
    Fix: use a deepspeed_config_file with nvme_path
    """
    exported = {name for launch in run.submission.launches for name in launch.environment}
    for what in ("optimizer", "param"):
        key = f"offload_{what}_device"
        variable = f"ACCELERATE_DEEPSPEED_OFFLOAD_{what.upper()}_NVME_PATH"
        has_path = run.config.config_file or variable in exported
        if run.config.deepspeed.get(key) == "nvme" and not has_path:
            message = (
                f"{key} is nvme, and accelerate 1.15 passes no offload_{what}_nvme_path "
                "on: the path is 'none'"
            )
            hint = f"use a deepspeed_config_file with a nvme_path, or export {variable}"
            yield violation(run.config, f"{_SECTION}/{key}", message, hint)


@clusters.rule("ACC011", WARNING, "silent", accelerate(f"{_VALIDATED})"))
def section_is_of_the_type(run: Accelerated) -> Violations:
    """A deepspeed_config goes with distributed_type DEEPSPEED, an fsdp_config with FSDP.
    Prevents: No error: training runs without DeepSpeed or FSDP. A note where the section's own
    config isn't there, or Python around it writes the option that turns the section on.
    Fix: set the distributed_type of the section
    """
    kind = run.config.value("distributed_type")
    for key, right, option in (
        ("deepspeed_config", "DEEPSPEED", "--use_deepspeed"),
        ("fsdp_config", "FSDP", "--use_fsdp"),
        ("megatron_lm_config", "MEGATRON_LM", "--use_megatron_lm"),
    ):
        is_of_other_type = kind in DISTRIBUTED_TYPES and kind != right
        if is_of_other_type and run.config.block(key) and not run.overridden(option):
            message = f"{key} has no effect with distributed_type {kind}"
            hint = f"set distributed_type to {right}, or remove {key}"
            is_certain = _is_missed(run, key) and not _is_written(run, option)
            severity = None if is_certain else NOTE
            yield Violation(run.config.locate_key(key), message, hint, severity=severity)


def _is_written(run: Accelerated, option: str) -> bool:
    """Whether a program around the config writes an option, perhaps into the launch's command."""
    folders = folders_above(run.config.path)
    return any(any(texts_of(folder, ("*.py", "*/*.py"), option)) for folder in folders)


def _is_missed(run: Accelerated, section: str) -> bool:
    """Whether a run without a section of the config lacks something that it could have."""
    config = run.config
    # FSDP, unless it offloads, does nothing for a process that is alone.
    one_process = section == "fsdp_config" and config.processes == 1
    if one_process and not is_true(config.value("fsdp_config/fsdp_offload_params")):
        return False
    # Without the file that deepspeed_config_file names, no run could use DeepSpeed.
    where = config.locate(_FILE)
    return all(
        link.exists or link.near or link.where != where for link in run.submission.references
    )


@_sections.rule("HF014", NOTE, "silent", _PLUGIN)
def init_is_for_stage_3(run: Accelerated) -> Violations:
    """zero3_init_flag is true under ZeRO stage 3 only.
    Prevents: A warning that the flag is only applicable for ZeRO stage 3, and every rank loads the
    whole model.
    Fix: set zero3_init_flag: false, or stage 3
    """
    stage, name = run.config.zero_stage, "zero3_init_flag"
    if run.config.config_file:
        ds_config = used_config(run.submission)
        stage = ds_config.stage if ds_config is not None else None
    if is_true(run.config.deepspeed.get(name)) and stage in (0, 1, 2):
        message = f"zero3_init_flag is true under ZeRO stage {stage}: accelerate sets it to false"
        yield violation(run.config, f"{_SECTION}/{name}", message, "set zero3_init_flag: false")


@_sections.rule("ACC012", ERROR, "silent", _STAGE_3)
def parameters_are_offloaded_at_stage_3(run: Accelerated) -> Violations:
    """offload_param_device is cpu or nvme under ZeRO stage 3 only.
    Prevents: No error: the parameters stay on the GPU.
    Fix: use stage 3"""
    device, stage = run.config.deepspeed.get("offload_param_device"), run.config.zero_stage
    is_read = run.config.uses_deepspeed and not run.config.config_file
    if is_read and device in ("cpu", "nvme") and stage in (0, 1, 2):
        message = (
            f"offload_param_device {device} under ZeRO stage {stage}: parameters stay on the GPU"
        )
        hint = "set zero_stage: 3, or offload_param_device: none"
        yield violation(run.config, f"{_SECTION}/offload_param_device", message, hint)


@_sections.rule("ACC013", WARNING, "silent", _PLUGIN)
def stage_is_the_configs(run: Accelerated) -> Violations:
    """accelerate's zero_stage is that of the DeepSpeed config in the same submission.
    Prevents: No error: one of the two stages has no effect.
    Fix: set deepspeed_config_file, and remove zero_stage"""
    stage, ds_config = run.config.zero_stage, used_config(run.submission)
    is_written = run.config.deepspeed.get("zero_stage") is not None
    if ds_config is None or run.config.config_file or not is_written:
        return
    if None not in (stage, ds_config.stage) and ds_config.stage != stage:
        message = (
            f"zero_stage is {stage} here and {ds_config.stage} in the DeepSpeed config: one "
            "of them is not used"
        )
        hint = f"set deepspeed_config_file to {ds_config.name}, and remove zero_stage"
        # A config that no file refers to may be another job's.
        is_named = id(ds_config.json) in named_by(run.submission.references)
        severity = None if is_named else NOTE
        mismatch = violation(run.config, f"{_SECTION}/zero_stage", message, hint, severity=severity)
        yield against(ds_config.locate("/zero_optimization/stage"), mismatch)


@clusters.rule(
    "ACC018", ERROR, "init", accelerate("utils/deepspeed.py (HfDeepSpeedConfig.__init__)")
)
def config_file_is_a_path(run: Accelerated) -> Violations:
    """deepspeed_config_file is the path of a DeepSpeed config.
    Prevents: ValueError: Expected a string path to an existing deepspeed config
    Fix: set deepspeed_config_file: ds_config.json"""
    value = run.config.config_file
    if value is None or run.overridden("--deepspeed_config_file"):
        return
    is_text = isinstance(value, str) and not is_whole(value)
    is_base64 = len(str(value)) >= _SHORTEST_BASE64
    has_ending = PurePosixPath(str(value)).suffix != ""
    is_known_form = is_text and (is_base64 or value == "none" or has_ending)
    if not is_known_form:
        message = f"deepspeed_config_file is {show(value)}, not the path of a JSON file"
        hint = "set deepspeed_config_file to ds_config.json"
        severity = WARNING if is_text else None
        yield violation(run.config, _FILE, message, hint, severity=severity)


#: The calls with a DeepSpeed config in their submission.
_calls: Final = accelerate_calls.where(
    lambda call: used_config(call.submission), "launch script", "DeepSpeed config"
)


@_calls.rule(
    "HF008", ERROR, "init", accelerate("utils/dataclasses.py (DeepSpeedPlugin.set_mixed_precision)")
)
def precision_is_the_configs(call: LauncherCall) -> Violations:
    """--mixed_precision of accelerate launch is what the DeepSpeed config enables.
    Prevents: ValueError: `--mixed_precision` arg cannot be set to `fp16` when `bf16` is set in the
    config file.
    Fix: use the same precision in both
    """
    precision, config = call.text("--mixed_precision"), used_config(call.submission)
    if precision is None or config is None:
        return
    excluded = {"fp16": "bf16", "bf16": "fp16", "fp8": "fp16"}.get(precision.value)
    if excluded is not None and config.switch(f"/{excluded}/enabled"):
        message = (
            f"--mixed_precision {precision.value}, and {excluded} is enabled in the DeepSpeed "
            "config"
        )
        mismatch = precision.bad_option(message, f"use --mixed_precision {excluded}, or remove it")
        yield against(config.locate(f"/{excluded}/enabled"), mismatch)


@_calls.rule("HF012", WARNING, "silent", _PLUGIN)
def accumulation_is_the_configs(call: LauncherCall) -> Violations:
    """--gradient_accumulation_steps of accelerate launch is the DeepSpeed config's, which counts.
    Prevents: No error: the DeepSpeed config's number is used, and the batch is another one.
    Fix: use the same number in both"""
    steps, config = call.integer("--gradient_accumulation_steps"), used_config(call.submission)
    if not steps or config is None or not call.has("--deepspeed_config_file"):
        return
    pointer = "/gradient_accumulation_steps"
    value = whole_number(config.value(pointer))
    if value not in (None, steps.value):
        message = (
            f"--gradient_accumulation_steps {steps.value} is not used: the "
            f"DeepSpeed config has {value}"
        )
        mismatch = steps.bad_option(message, f"use {value} in both, or only in the JSON")
        yield against(config.locate(pointer), mismatch)


_LAUNCH: Final = accelerate("utils/launch.py (prepare_deepspeed_cmd_env)")
# utils/constants.py:49
LAUNCHERS: Final = ("pdsh", "standard", "openmpi", "mvapich", "mpich", "nossh", "slurm")


@clusters.rule("HF015", ERROR, "silent", _LAUNCH)
def processes_divide_among_machines(run: Accelerated) -> Violations:
    """num_processes is a multiple of num_machines.
    Prevents: No error: fewer processes than asked for, so another batch; the rest of the GPUs are
    not used.
    Fix: use a multiple of num_machines
    """
    processes, machines = run.config.processes or 0, run.config.machines
    if processes < 1 or machines < 1 or run.overridden("--num_processes", "--num_machines"):
        return
    if processes % machines:
        each = processes // machines
        message = (
            f"num_processes {processes} over num_machines {machines} gives {each} each: "
            f"{each * machines} start"
        )
        hint = f"set num_processes to {max(each, 1) * machines} or {(each + 1) * machines}"
        yield violation(run.config, "num_processes", message, hint)


@clusters.rule("HF016", ERROR, "launcher", _LAUNCH)
def launcher_is_known(run: Accelerated) -> Violations:
    """deepspeed_multinode_launcher is one that accelerate and the version of DeepSpeed have.
    Prevents: ValueError: nossh launcher requires DeepSpeed >= 0.14.5, or NotImplementedError:
    Unknown launcher
    Fix: use pdsh, standard, openmpi, mvapich, mpich, nossh or slurm
    """
    name = "deepspeed_multinode_launcher"
    value, release = run.config.launcher, release_of_deepspeed(run.submission, run.config.path)
    if value is None or run.overridden(f"--{name}"):
        return
    at = f"{_SECTION}/{name}"
    if value not in LAUNCHERS:
        message = f"unknown {name} {show(value)}"
        yield violation(run.config, at, message, f"use {listed(LAUNCHERS)}")
    elif value == "nossh" and release.version < (0, 14, 5):  # accelerate utils/launch.py:468
        message = f"{name} nossh with {release}; it needs 0.14.5 or newer"
        yield violation(run.config, at, message, "use standard, or DeepSpeed 0.14.5 or newer")


@groups.rule("ACC014", ERROR, "silent", _LAUNCH + "; deepspeed/launcher/runner.py:231-234")
def machines_have_a_hostfile(run: Accelerated) -> Violations:
    """Several machines under a launcher of DeepSpeed's have a deepspeed_hostfile.
    Prevents: No error: `deepspeed --hostfile None` finds no such file, and trains on the local node
    only.
    Fix: set deepspeed_hostfile
    """
    config = run.config
    if not config.uses_deepspeed or config.launcher in ("standard", None):
        return
    has_hostfile = config.deepspeed.get("deepspeed_hostfile") or run.overridden(
        "--deepspeed_hostfile", "--deepspeed_multinode_launcher"
    )
    if not has_hostfile:
        message = (
            f"num_machines {config.machines} under the launcher {config.launcher}, and "
            "no deepspeed_hostfile"
        )
        hint = "set deepspeed_hostfile, or deepspeed_multinode_launcher: standard"
        yield violation(config, "num_machines", message, hint)


@groups.rule("ACC015", ERROR, "launcher", _LAUNCH)
def machines_have_an_address(run: Accelerated) -> Violations:
    """Several machines under the standard launcher have main_process_ip and main_process_port.
    Prevents: The rendezvous at None:29500 is never reached.
    Fix: set main_process_ip"""
    config = run.config
    is_standard = not config.uses_deepspeed or config.launcher == "standard"
    has_address = config.value("main_process_ip") or run.overridden("--main_process_ip")
    if is_standard and not has_address:
        message = (
            f"num_machines {config.machines} and no main_process_ip: no machine knows the address "
            "of the first"
        )
        hint = (
            "set main_process_ip to the first node's address, or add "
            "--main_process_ip to the launch line"
        )
        severity = None if run.launches else NOTE  # a launch line may give it
        yield violation(config, "num_machines", message, hint, severity=severity)


@clusters.rule("ACC016", ERROR, "launcher", _LAUNCH)
def rank_is_within(run: Accelerated) -> Violations:
    """machine_rank is below num_machines.
    Prevents: The launcher refuses the rank, or waits for others forever.
    Fix: use a rank from 0 to num_machines - 1"""
    config, rank = run.config, run.config.integer("machine_rank")
    machines = config.integer("num_machines") if config.has("num_machines") else 1
    if rank is None or machines is None or run.overridden("--machine_rank", "--num_machines"):
        return
    last = max(machines, 1) - 1
    if not 0 <= rank <= last:
        message = f"machine_rank {rank} of num_machines {machines}: ranks are 0 to {last}"
        yield violation(config, "machine_rank", message, "set machine_rank to 0")


@groups.rule("ACC020", WARNING, "launcher", _LAUNCH)
def machines_have_their_ranks(run: Accelerated) -> Violations:
    """A config for several machines leaves machine_rank to --machine_rank of the launch line.
    Prevents: Every node assumes rank 0, and the rendezvous never completes.
    Fix: add --machine_rank to the launch line"""
    config = run.config
    # one command starts the processes on all nodes
    starts_all = config.uses_deepspeed and config.launcher not in ("standard", "nossh", None)
    if starts_all or not run.launches or run.overridden("--machine_rank"):
        return
    rank = config.value("machine_rank", 0)
    beside = run.submission.files.beside(config.path, "accelerate config")
    # There may be a config for each machine, each with its rank.
    is_one_of_several = any(
        other.machines == config.machines and other.value("machine_rank", 0) != rank
        for other in beside
    )
    if not is_one_of_several:
        message = f"num_machines {config.machines}, and every node assumes rank {rank}"
        hint = "add --machine_rank to the launch line, as in --machine_rank $SLURM_NODEID"
        name = "machine_rank" if config.has("machine_rank") else "num_machines"
        yield violation(config, name, message, hint)


@clusters.rule("ACC017", WARNING, "silent", _LAUNCH)
def filters_are_one(run: Accelerated) -> Violations:
    """Only one of deepspeed_inclusion_filter and deepspeed_exclusion_filter is given.
    Prevents: No error: the inclusion filter has no effect.
    Fix: remove one of the two"""
    inclusion, exclusion = "deepspeed_inclusion_filter", "deepspeed_exclusion_filter"
    included = run.config.deepspeed.get(inclusion)
    excluded = run.config.deepspeed.get(exclusion)
    if included and excluded:
        message = f"{inclusion} {included} has no effect with {exclusion} {excluded}"
        yield violation(run.config, f"{_SECTION}/{inclusion}", message, "remove one of the two")


@clusters.rule("ACC024", WARNING, "init", accelerate("accelerator.py (_prepare_deepspeed)"))
def auto_batch_needs_a_loader(run: Accelerated) -> Violations:
    """A micro-batch of "auto" is filled in from a loader that the program hands to prepare.
    Prevents: ValueError: When using DeepSpeed, `accelerate.prepare()` requires you to pass at least
    one of training or evaluation dataloaders
    Fix: write the number, or hand the loader to prepare
    """
    config = used_config(run.submission)
    micro = "/train_micro_batch_size_per_gpu"
    if config is None or config.json.value(micro) != "auto":
        return
    for launch in run.submission.launches:
        text = program_text(launch) if launch.call("accelerate") is not None else None
        if text is not None and prepares_no_loader(text):
            program = launch.program.raw if launch.program is not None else "the program"
            message = f'{micro[1:]} is "auto", and {program} hands no loader to prepare'
            hint = "write the number, or hand a loader to prepare"
            yield violation(config, micro, message, hint)
            return
