"""Rules on the files of one submission against one another.

They compare what files say of GPUs and nodes, look for the files that others name, and bound sizes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain, product
from pathlib import PurePath
from typing import Final

from ...findings import ERROR, NOTE, WARNING, Location, Violation, Violations
from ...places import is_left_open
from ...programs.deepspeed.config import BATCH_KEYS, Config
from ...programs.deepspeed.rules.subjects import ds_configs
from ...programs.deepspeed.submission import configs_of, used_config
from ...programs.python_around import spreads_over_gpus
from ...rules.violations import deepspeed, deepspeed_0_19_8, derived
from ...submission.claims import Claim
from ...submission.references import Reference
from ...submission.repository import has_text
from ...submission.subjects import submissions
from ...submission.submission import Submission
from ...submission.world import FLAGS, MOST_GPUS, World, world_of
from ...text.around import folders_above, is_ignored
from ...text.shell.background import in_background
from ...text.slips import is_slip
from ...text.wording import counted

_KINDS: Final = (
    "job spec",
    "DeepSpeed config",
    "launch script",
    "AzureML job",
    "accelerate config",
    "hostfile",
)
#: Kinds of files that rules look for where others name them.
_NAMED_KINDS: Final = ("accelerate config", "hostfile", "training arguments")
_CONFIG_READERS: Final = (
    "launch script",
    "AzureML job",
    "accelerate config",
    "training arguments",
    "DeepSpeed config",
)
_WORLD: Final = derived(
    "world size is nodes × processes a node; launchers wait for ranks that never come"
)
_NODES: Final = derived("the launcher's rendezvous waits for as many nodes as its options say")
_UNUSED: Final = derived("GPUs that no process uses are paid for all the same")
_OTHER_CONFIG: Final = derived("a config that isn't used says nothing about the job")
_MISSING: Final = derived(
    "a path that doesn't exist stops the program that reads it; the file may lie elsewhere"
)


@submissions.rule("SUB001", ERROR, "launcher", _WORLD, reads=_KINDS)
def gpus_agree(submission: Submission) -> Violations:
    """Every document of a submission counts the same GPUs, and starts one process on each.
    Prevents: The rendezvous waits for processes that never start, or ranks get no GPU; batch sizes
    are wrong.
    Fix: write the same nodes × GPUs in the scheduler's options, the launcher's and the config
    """
    world = world_of(submission)
    paths_with_wrong_nodes = {
        claim.where.path for claim, _ in _contradictions(submission, world.claims_on("nodes"))
    }
    wrong_gpus_per_node = {
        (claim.where.path, claim.value)
        for claim, _ in _contradictions(submission, world.claims_on("GPUs per node"))
    }
    paths_with_wrong_gpus_per_node = {path for path, _ in wrong_gpus_per_node}
    wrong_products = {(path, gpus * (world.nodes or 1)) for path, gpus in wrong_gpus_per_node}
    for claim, trusted in _contradictions(
        submission, (*world.claims_on("GPUs"), *world.claims_on("processes"))
    ):
        # GPUs that are only asked for, not for the run by a job or a flag, needn't all be used.
        is_asked_for = submission.job is None and trusted.where.path != FLAGS
        is_fewer = is_asked_for and claim.value < trusted.value
        path = claim.where.path

        # The findings on a file's nodes, and on its GPUs per node, say it already.
        follows = (path, claim.value) in wrong_products
        is_told = (
            follows
            or path in paths_with_wrong_nodes
            or (path in paths_with_wrong_gpus_per_node and (is_fewer or world.nodes == 1))
        )
        if is_told or (is_fewer and _leaves_some(submission, path)):
            continue
        yield _gpus_differ(claim, trusted, world, is_fewer=is_fewer)


def _gpus_differ(claim: Claim, trusted: Claim, world: World, *, is_fewer: bool) -> Violation:
    """The violation of a claim on GPUs or processes that contradicts a trusted one."""
    processes = f"{claim.value} process{'es' * (claim.value != 1)}"
    means = processes if claim.quantity == "processes" else counted(claim.value, "GPU")
    message = (
        f"{claim.text} means {means}, but {trusted.placed} means {counted(trusted.value, 'GPU')}"
    )

    is_spare = is_fewer and world.nodes == 1  # no rank waits, and others may use the rest
    nodes, rest = divmod(trusted.value, world.gpus_per_node or max(trusted.value, 1))
    per_node = world.gpus_per_node if rest == 0 else None
    if is_spare:
        hint = f"start {trusted.value}, or ask for {counted(claim.value, 'GPU')}"
    elif per_node:
        hint = f"write {counted(nodes, 'node')} × {per_node} GPUs"
    else:
        hint = f"start {trusted.value} in all, one process for each"

    where = claim.where
    for other in world.claims_on("nodes"):
        is_beside = claim.text.startswith(other.text) and other.where.path == where.path
        # Where only the nodes of the line are wrong, theirs is the place to change.
        if per_node is not None and claim.value == other.value * per_node and is_beside:
            where = other.where

    severity = WARNING if is_spare else None
    if claim.text.startswith("mpirun"):  # processes of MPI may share a GPU, or use none
        severity = NOTE
    return Violation(where, message, hint, severity=severity)


def _leaves_some(submission: Submission, path: str) -> bool:
    """Return whether a job may leave GPUs or nodes to other programs.

    They are for vLLM, which generates beside the training, or for other programs of its script.
    """
    for arguments in submission.of_kind("training arguments"):
        if arguments.value("use_vllm") is True:
            return True

    launches = [launch for launch in submission.launches if launch.script.text.path == path]
    if len(launches) > 1:
        return True

    for script in submission.scripts:
        if script.path != path:
            continue
        variables = chain.from_iterable(command.environment for command in script.shell.commands)
        if any(variable.name == "CUDA_VISIBLE_DEVICES" for variable in variables):
            return True
    return False


@submissions.rule("SUB002", ERROR, "launcher", _NODES, reads=_KINDS)
def nodes_agree(submission: Submission) -> Violations:
    """Every document of a submission counts the same nodes.
    Prevents: The rendezvous waits for nodes that never come, or allocated nodes are unused.
    Fix: write the same number of nodes in the scheduler's and the launcher's options; $SLURM_NNODES
    is always right
    """
    for claim, trusted in _contradictions(submission, world_of(submission).claims_on("nodes")):
        nodes = counted(claim.value, "node")
        message = f"{claim.text} means {nodes}, but {trusted.placed} means {trusted.value}"
        is_fewer = claim.value < trusted.value
        severity = NOTE if is_fewer and _leaves_some(submission, claim.where.path) else None
        yield Violation(claim.where, message, f"write {trusted.value} in both", severity=severity)


@submissions.rule("SUB003", WARNING, "silent", _UNUSED, reads=_KINDS)
def gpus_per_node_agree(submission: Submission) -> Violations:
    """Every document of a submission uses the same number of GPUs of a node, and all that the node
    has.
    Prevents: No error where it is fewer: unused GPUs. Where it is more: CUDA error, invalid device
    ordinal.
    Fix: start as many processes per node as it has GPUs
    """
    world = world_of(submission)
    contradictions = list(_contradictions(submission, world.claims_on("GPUs per node")))
    places_in_background = _places_in_background(submission) if contradictions else frozenset()
    for claim, trusted in contradictions:
        if claim.value > trusted.value:
            uses = f"{claim.value}, more than the {trusted.value}"
            severity = ERROR
        elif claim.where in places_in_background:
            continue  # other lines have the rest of the GPUs
        elif _uses_several(submission, claim, trusted):
            continue
        else:
            uses = f"{claim.value} of {trusted.value}"
            has_enough = world.gpus is not None and world.gpus <= claim.value
            severity = NOTE if has_enough else WARNING
        message = f"{claim.text} uses {uses} GPUs per node, according to {trusted.placed}"
        hint = f"write {trusted.value} in both"
        yield Violation(claim.where, message, hint, severity=severity)


def _uses_several(submission: Submission, claim: Claim, trusted: Claim) -> bool:
    """Whether each process of the launch line that claims some GPUs uses its share of all."""
    if claim.value < 1:
        return False
    gpus_each, rest = divmod(trusted.value, claim.value)
    return rest == 0 and any(
        spreads_over_gpus(launch, gpus_each)
        for launch in submission.launches
        for call in launch.calls
        for option in call.options.entries
        if launch.script.locate(option.written) == claim.where
    )


def _places_in_background(submission: Submission) -> frozenset[Location]:
    """The places of the options of launch lines that run beside others of their script."""
    return frozenset(
        launch.script.locate(option.written)
        for script in submission.scripts
        for launch in script.launches
        if in_background(launch.script, launch.calls[0].command)
        for call in launch.calls
        for option in call.options.entries
    )


def _contradictions(
    submission: Submission, claims: tuple[Claim, ...]
) -> Iterator[tuple[Claim, Claim]]:
    """The claims that contradict the first, most trusted one, each with that one.

    Two scripts may be two jobs, unless one calls the other. That a third one calls both doesn't
    make them one job: it may run one after the other.
    """
    if not claims:
        return
    trusted = claims[0]
    called = {script.path: set(script.shell.called) for script in submission.scripts}
    scripts = called.keys() | set(chain.from_iterable(called.values()))
    hostfiles = {hostfile.path for hostfile in submission.of_kind("hostfile")}

    # Where one launch line of a script agrees, that line is the job, and others prepare it.
    launched = [claim for claim in claims if not claim.text.startswith("#SBATCH")]
    agreeing = {
        (claim.where.path, claim.quantity) for claim in launched if claim.value == trusted.value
    }
    for claim in claims:
        path, trusted_path = claim.where.path, trusted.where.path
        is_same = claim.value == trusted.value or (path, claim.quantity) in agreeing
        if is_same or path == FLAGS:
            continue
        calls = called.get(path, set()) | called.get(trusted_path, set())
        is_bound = path == trusted_path or not calls.isdisjoint((path, trusted_path))
        may_be_two_jobs = not is_bound and {path, trusted_path} <= scripts
        # A hostfile lists all hosts; DeepSpeed's launcher may use a part of it.
        is_part_of_hosts = trusted_path in hostfiles and claim.value < trusted.value
        if not may_be_two_jobs and not is_part_of_hosts:
            yield claim, trusted


@submissions.rule(
    "SUB010", NOTE, "silent", _OTHER_CONFIG, reads=("DeepSpeed config", "launch script")
)
def one_config_is_named(submission: Submission) -> Violations:
    """Where a job has several DeepSpeed configs, a launch line says which is used.
    Prevents: No error: another config than the one checked may be the one that is used.
    Fix: add --deepspeed_config with the path of the one that is meant"""
    programs = [launch for launch in submission.launches if launch.program is not None]
    named = any(link.kind == "DeepSpeed config" for link in submission.references)
    if len(programs) != 1 or used_config(submission) is not None or named:
        return
    launch = programs[0]
    names = submission.files.names_beside(launch.script.text.path, "DeepSpeed config")
    if len(names) > 1:
        where = launch.calls[0].where if launch.calls else launch.script.locate(0)
        message = (
            f"there are {len(names)} DeepSpeed configs ({', '.join(names)}), and "
            "this names none of them"
        )
        hint = "check the script with the config that it uses, or keep one job in a folder"
        yield Violation(where, message, hint)


@submissions.rule(
    "PARSE003", ERROR, "launcher", deepspeed("runtime/config.py:705"), reads=_CONFIG_READERS
)
def named_config_is_there(submission: Submission) -> Violations:
    """The DeepSpeed config that a launch line or another config names exists.
    Prevents: Expected a string path to an existing deepspeed config, or a dictionary or a valid
    base64. A note where it may be made later, or lie elsewhere; nothing where the script itself
    writes it.
    Fix: correct the path of the config, on a file system that every node has
    """
    for link in submission.references:
        is_gone = not link.exists and not is_left_open(link.path)
        if link.kind == "DeepSpeed config" and is_gone:
            yield _missing(submission, link, _names_beside(submission, link))


def _names_beside(submission: Submission, link: Reference) -> set[str]:
    """The names of the files of the looked-for kind that lie beside the one with the reference."""
    documents = submission.files.beside(link.where.path, link.kind)
    # A config that a script writes has the name under which it is written.
    return {
        PurePath(getattr(document, "target", None) or document.path).name for document in documents
    }


def _missing(submission: Submission, link: Reference, present: set[str]) -> Violation:
    """Return the violation of a reference to no file; `present` are the names of files beside it.

    It is an error where the name of another file is a slip away, or where the file is gone from a
    set that dsgen wrote.
    """
    among = f"among the files here ({', '.join(sorted(present))})" if present else "there"
    kind = "file" if link.kind == "training arguments" else link.kind
    message = f"the {kind} {link.path} is not {among}"

    # A set has one config: where another is in its place, the file was renamed.
    is_renamed = link.whole and link.kind == "DeepSpeed config" and len(present) == 1
    near = next(iter(present)) if is_renamed else link.near
    if near is not None:
        return Violation(link.where, message, f"did you mean `{near}`?", severity=ERROR)
    if link.whole:
        hint = "write the files anew with dsgen generate"
        return Violation(link.where, message, hint, severity=ERROR)

    # An absolute path may be another machine's.
    is_here = not link.path.startswith("/")
    names = sorted(present) if is_here else ()
    beside = next((name for name in names if name == link.name or is_slip(link.name, name)), None)
    hint = "add it, or correct the path" if beside is None else f"{beside} lies beside this file"
    elsewhere = submission.files.paths_of(link.name, link.kind) if is_here else []
    if beside is None and len(elsewhere) == 1:
        hint = f"correct the path to that of {elsewhere[0]}, or add it"

    # Few put a hostfile into a repository, or what git ignores.
    is_left_to_git = is_ignored(PurePath(link.path), link.where.path)
    may_lie_elsewhere = link.kind == "hostfile" or not link.sure or is_left_to_git
    severity = NOTE if may_lie_elsewhere else WARNING
    return Violation(link.where, message, hint, severity=severity)


@submissions.rule(
    "SUB011",
    WARNING,
    "launcher",
    _MISSING,
    reads=("launch script", "accelerate config", "hostfile"),
)
def named_files_are_there(submission: Submission) -> Violations:
    """A config of accelerate's or a hostfile that a launch line names is there.
    Prevents: The program stops at start because the file doesn't exist, or reads another one than
    was checked.
    Fix: use the name of a file of the submission
    """
    for link in submission.references:
        if link.exists or is_left_open(link.path):
            continue
        # Scripts are judged here in dsgen's own sets only; of others a rule looks for slips.
        is_gone = link.whole and link.kind in ("launch script", "training arguments")
        if link.kind not in _NAMED_KINDS and not is_gone:
            continue
        present = _names_beside(submission, link)
        is_expected = present or link.sure or link.kind == "accelerate config"
        if link.near or is_gone or (is_expected and not _is_fetched(link)):
            yield _missing(submission, link, present)


def _is_fetched(link: Reference) -> bool:
    """Return whether a script, Makefile or Dockerfile around fetches the file or its folder, or
    writes the file.
    """
    folder_name = link.path.strip("./").partition("/")[0]
    names = "|".join(re.escape(name) for name in {folder_name, link.name} if name)
    written = _WRITES_TO + re.escape(link.path.removeprefix("./"))
    fetched = re.compile(rf"(?:{_FETCHES}[^\n]*(?<![\w.-])(?:{names})|{written})(?![\w-])")
    return any(
        has_text(folder, fetched, ("*.sh", "*/*.sh", "Makefile", "Dockerfile*"))
        for folder in folders_above(link.where.path)
    )


#: Commands that bring files from elsewhere.
_FETCHES: Final = (
    r"\b(?:git clone|wget|curl|hf download|huggingface-cli download|aws s3|gsutil|azcopy|rsync|scp"
    r"|tar|unzip)\b"
)
#: What stands before the path of a file that a command writes.
_WRITES_TO: Final = r">[ \t]*[\"']?(?:\./|\$[\w{}]{1,80}/)?"
_OF_SIZES: Final = (
    "DeepSpeed config",
    "launch script",
    "AzureML job",
    "accelerate config",
    "hostfile",
)
_SOURCE: Final = derived(
    "NCCL's ncclCommInitRank takes an int; a job spec has at most 1,048,576 GPUs"
)
_LARGEST: Final = 2**31 - 1  #: no size is larger: what 32 bits hold
_DEEPSPEED_SIZES: Final = (
    *(f"/{key}" for key in BATCH_KEYS),
    "/zero_optimization/zero_hpz_partition_size",
    "/mics_shard_size",
    "/sequence_parallel_size",
    "/tensor_parallel/autotp_size",
    "/tensor_parallel/tp/tp_size",
    "/elasticity/max_train_batch_size",
)


@submissions.rule("SUB016", ERROR, "launcher", _SOURCE, reads=_OF_SIZES)
def sizes_are_possible(submission: Submission) -> Violations:
    """A run has at most 1,048,576 nodes and GPUs, and a size of 32 bits: 2,147,483,647.
    Prevents: The launcher waits for nodes that do not exist; integers overflow; memory runs out at
    once.
    Fix: write the number that was meant
    """
    for claim in world_of(submission).beyond:
        message = (
            f"{claim.text[:80]} is more {claim.quantity} than any machine has: "
            f"at most {MOST_GPUS:,}"
        )
        yield Violation(claim.where, message, f"write 1 to {MOST_GPUS}")
    for name, number, where in _sizes(submission):
        if number is not None and number > _LARGEST:
            shown = f"{number:,}" if number < 10**24 else "a number of more than 24 digits"
            yield Violation(
                where, f"{name} is {shown}; the most is {_LARGEST:,}", f"write 1 to {_LARGEST}"
            )


def _sizes(submission: Submission) -> Iterator[tuple[str, int | None, Location]]:
    """The sizes that files have: the name of each, its number if it is one, and its place."""
    for arguments in submission.of_kind("Megatron arguments"):
        from ...programs.megatron.run import SIZES  # saves start-up time without any

        for option in SIZES:
            yield option, arguments.integer(option), arguments.locate(option)
    for config, pointer in product(configs_of(submission), _DEEPSPEED_SIZES):
        yield pointer[1:].replace("/", "."), config.whole(pointer), config.locate(pointer)


_COPIES: Final = deepspeed_0_19_8(
    "runtime/zero/stage3.py, estimate_zero3_model_states_mem_needs: GPUs per node × "
    "4 bytes a parameter"
)
#: Folders of users, which clusters share. Source: Filesystem Hierarchy Standard 3.0, 3.8
_HOMES: Final = "/home/"
_OFFLOADS: Final = ("/zero_optimization/offload_optimizer", "/zero_optimization/offload_param")
_WHOLE: Final = "every rank loads the whole model into the node's memory"


@ds_configs.rule(
    "MEM003", NOTE, "training", derived("DeepNVMe reads and writes the states of every step")
)
def nvme_folder_is_the_nodes_own(config: Config) -> Violations:
    """Offloading to NVMe goes to a disk of the node's own.
    Prevents: No error: steps take minutes, and the file system is slow for everybody.
    Fix: use the node's own disk"""
    for place in _OFFLOADS:
        is_to_nvme = config.text(f"{place}/device") == "nvme"
        path = config.value(f"{place}/nvme_path")
        if is_to_nvme and isinstance(path, str) and path.startswith(_HOMES):
            message = (
                f"nvme_path: {path} is in a home folder, which nodes commonly share: "
                "all would swap over it"
            )
            where = config.locate(f"{place}/nvme_path")
            yield Violation(where, message, "use the node's own disk, such as /local_nvme")


@submissions.rule("MEM004", NOTE, "init", _COPIES, reads=("accelerate config", "launch script"))
def model_is_loaded_in_parts(submission: Submission) -> Violations:
    """With ZeRO-3 accelerate loads the model in parts: zero3_init_flag.
    Prevents: Killed, where the node's memory can't hold a copy of the model for each of its GPUs.
    Fix: set zero3_init_flag to true"""
    for config in submission.of_kind("accelerate config"):
        if config.zero_stage == 3 and config.deepspeed.get("zero3_init_flag") is False:
            message = f"zero_stage: 3 with zero3_init_flag: false: {_WHOLE}"
            where = config.locate("deepspeed_config/zero3_init_flag")
            yield Violation(where, message, "set zero3_init_flag to true")

    for launch in submission.launches:
        call = launch.call("accelerate")
        flag = call.options.get("--zero3_init_flag") if call else None
        if call is None or flag is None:
            continue
        is_off = (call.options.text("--zero3_init_flag") or "").lower() == "false"
        if is_off and call.options.integer("--zero_stage") == 3:
            message = f"--zero_stage 3 with --zero3_init_flag false: {_WHOLE}"
            where = launch.script.locate(flag.written)
            yield Violation(where, message, "use --zero3_init_flag true")
