"""How `accelerate launch` reaches several machines: launchers, hostfiles, addresses, ranks."""

from __future__ import annotations

from typing import Final

from ....documents.document import AccelerateConfig
from ....documents.submission import Submission
from ....findings import ERROR, WARNING, Violation, Violations
from ....job.wording import show
from ...numbers import listed
from ...rule import submissions
from ...sources import accelerate
from .accelerate import clusters, on_the_line

_LAUNCH: Final = accelerate("utils/launch.py (prepare_deepspeed_cmd_env)")

_AT: Final = "/deepspeed_config"
LAUNCHERS: Final = ("pdsh", "standard", "openmpi", "mvapich", "mpich", "nossh", "slurm")  # utils/constants.py:49
_NOSSH_SINCE: Final = (0, 14, 5)  # accelerate utils/launch.py:468


@submissions.rule("HF015", ERROR, "silent", _LAUNCH, reads=("accelerate config",))
def processes_divide_among_machines(submission: Submission) -> Violations:
    """num_processes is a multiple of num_machines.

    Prevents: No error: fewer processes than asked for, so another batch; the rest of the GPUs idle.
    Fix: a multiple of num_machines
    """
    for config in clusters(submission):
        processes, machines = config.source.integer("/num_processes"), config.source.integer("/num_machines")
        if on_the_line(submission, "--num_processes", "--num_machines") or not processes or not machines:
            continue
        if machines > 0 and processes > 0 and processes % machines:
            each = processes // machines
            message = f"num_processes {processes} over num_machines {machines} is {each} each: {each * machines} start"
            hint = f"num_processes: {max(each, 1) * machines} or {(each + 1) * machines}"
            yield Violation(where=config.source.locate("/num_processes"), message=message, hint=hint)


@submissions.rule("HF016", ERROR, "launcher", _LAUNCH, reads=("accelerate config",))
def launcher_is_known(submission: Submission) -> Violations:
    """deepspeed_multinode_launcher is one that accelerate and DeepSpeed have, in the version at hand.

    Prevents: ValueError: nossh launcher requires DeepSpeed >= 0.14.5, or NotImplementedError: Unknown launcher
    Fix: pdsh, standard, openmpi, mvapich, mpich, nossh or slurm
    """
    for config in clusters(submission):
        pointer = f"{_AT}/deepspeed_multinode_launcher"
        value, where = config.source.value(pointer), config.source.locate(pointer)
        if value is None or on_the_line(submission, "--deepspeed_multinode_launcher"):
            continue
        if value not in LAUNCHERS:
            message = f"deepspeed_multinode_launcher is {show(value)}"
            yield Violation(where=where, message=message, hint=listed(LAUNCHERS))
        elif value == "nossh" and submission.deepspeed_version < _NOSSH_SINCE:
            version = ".".join(map(str, submission.deepspeed_version))
            message = f"deepspeed_multinode_launcher nossh with DeepSpeed {version}; it is there since 0.14.5"
            yield Violation(where=where, message=message, hint="standard, or DeepSpeed 0.14.5 or newer")


@submissions.rule(
    "ACC014", ERROR, "silent", _LAUNCH + "; deepspeed/launcher/runner.py:231-234", reads=("accelerate config",)
)
def machines_have_a_hostfile(submission: Submission) -> Violations:
    """Several machines under a launcher of DeepSpeed's have a deepspeed_hostfile.

    Prevents: No error: `deepspeed --hostfile None` finds no such file, and trains on the local node only.
    Fix: deepspeed_hostfile
    """
    for config in clusters(submission):
        source, machines = config.source, config.source.integer("/num_machines") or 1
        launcher = source.value(f"{_AT}/deepspeed_multinode_launcher", "pdsh")
        if source.value("/distributed_type") != "DEEPSPEED" or machines < 2 or launcher in ("standard", None):
            continue
        if on_the_line(submission, "--deepspeed_hostfile", "--deepspeed_multinode_launcher", "--num_machines"):
            continue
        if not source.value(f"{_AT}/deepspeed_hostfile"):
            message = f"num_machines {machines} under the launcher {launcher}, and no deepspeed_hostfile"
            hint = "deepspeed_hostfile: hostfile, or deepspeed_multinode_launcher: standard"
            yield Violation(where=source.locate("/num_machines"), message=message, hint=hint)


@submissions.rule("ACC015", ERROR, "launcher", _LAUNCH, reads=("accelerate config",))
def machines_have_an_address(submission: Submission) -> Violations:
    """Several machines under the standard launcher have main_process_ip and main_process_port.

    Prevents: The rendezvous at None:29500 is never reached.
    Fix: main_process_ip
    """
    for config in clusters(submission):
        source, machines = config.source, config.source.integer("/num_machines") or 1
        launcher = source.value(f"{_AT}/deepspeed_multinode_launcher", "pdsh")
        deepspeed = source.value("/distributed_type") == "DEEPSPEED"
        if machines < 2 or (deepspeed and launcher != "standard"):
            continue
        if on_the_line(submission, "--main_process_ip", "--num_machines") or source.value("/main_process_ip"):
            continue
        message = f"num_machines {machines} and no main_process_ip: the rendezvous is at None"
        hint = "main_process_ip: the first node's address, or --main_process_ip on the launch line"
        yield Violation(where=source.locate("/num_machines"), message=message, hint=hint)


@submissions.rule("ACC016", ERROR, "launcher", _LAUNCH, reads=("accelerate config",))
def rank_is_within(submission: Submission) -> Violations:
    """machine_rank is below num_machines.

    Prevents: The launcher refuses the rank, or waits for others forever.
    Fix: 0 to num_machines - 1
    """
    for config in clusters(submission):
        rank, machines = config.source.integer("/machine_rank"), config.source.integer("/num_machines")
        machines = 1 if machines is None and not config.source.has("/num_machines") else machines
        if rank is None or machines is None or on_the_line(submission, "--machine_rank", "--num_machines"):
            continue
        if not 0 <= rank < max(machines, 1):
            message = f"machine_rank {rank} of num_machines {machines}: ranks are 0 to {max(machines, 1) - 1}"
            yield Violation(where=config.source.locate("/machine_rank"), message=message, hint="machine_rank: 0")


@submissions.rule("ACC020", WARNING, "launcher", _LAUNCH, reads=("accelerate config", "launch script"))
def machines_have_their_ranks(submission: Submission) -> Violations:
    """A config for several machines leaves machine_rank to --machine_rank of the launch line.

    Prevents: Every node takes itself for the first one, and the rendezvous never completes.
    Fix: --machine_rank on the launch line
    """
    for config in clusters(submission):
        source, machines = config.source, config.source.integer("/num_machines") or 1
        launcher = source.value(f"{_AT}/deepspeed_multinode_launcher", "pdsh")
        starts_all = source.value("/distributed_type") == "DEEPSPEED" and launcher not in ("standard", "nossh", None)
        calls = [call for launch in submission.launches for call in launch.calls if call.program == "accelerate"]
        if machines < 2 or starts_all or not calls or on_the_line(submission, "--machine_rank", "--num_machines"):
            continue
        message = f"num_machines {machines}, and machine_rank {source.value('/machine_rank', 0)} on each of them"
        where = source.locate("/machine_rank" if source.has("/machine_rank") else "/num_machines")
        hint = "--machine_rank on the launch line, as in --machine_rank $SLURM_NODEID"
        yield Violation(where=where, message=message, hint=hint)


@clusters.rule("ACC017", WARNING, "silent", _LAUNCH)
def filters_are_one(config: AccelerateConfig) -> Violations:
    """One of deepspeed_inclusion_filter and deepspeed_exclusion_filter is given.

    Prevents: No error: the inclusion filter is not used.
    Fix: one of the two
    """
    source = config.source
    both = [source.value(f"{_AT}/deepspeed_{kind}_filter") for kind in ("inclusion", "exclusion")]
    if all(both):
        message = f"deepspeed_inclusion_filter {both[0]} is not used beside deepspeed_exclusion_filter {both[1]}"
        where = source.locate(f"{_AT}/deepspeed_inclusion_filter")
        yield Violation(where=where, message=message, hint="one of the two")


_READS: Final = ("accelerate config",)
