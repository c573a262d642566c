"""Plain machines and scale sets: one script that starts torchrun on every host over ssh or pdsh."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ..frameworks.program import Program, RenderedFile
from ..search.plan import Plan
from .call import environment, fill, header, launch_options, processes_per_node
from .launcher import TRIAL, TRIAL_LOG, Launcher, Scheduler


def launch_files(plan: Plan, program: Program, command: str) -> tuple[RenderedFile, ...]:
    """`launch.sh`, and `hostfile` when the spec names the hosts and the job has more than one node."""
    options: Mapping[str, Any] = launch_options(plan)
    text = fill(
        "shell.sh.j2",
        plan,
        program,
        header=header(plan, program, command),
        environment=tuple(f"{name}={value}" for name, value in environment(plan, program).items()),
        pdsh=options.get("launcher", "ssh") == "pdsh",
        ssh_port=int(options.get("ssh_port", 22)),
        master_port=int(options.get("master_port", 29500)),
    )
    script = RenderedFile(path="launch.sh", text=text, executable=True)
    hosts: Sequence[str] = options.get("hosts", ())
    if plan.job.nodes == 1 or not hosts:
        return (script,)
    return (script, RenderedFile(path="hostfile", text=_hostfile(hosts, processes_per_node(plan))))


def _hostfile(hosts: Sequence[str], slots: int) -> str:
    """DeepSpeed's form, one `host slots=N` a line; the first host is the master."""
    return "".join(f"{host} slots={slots}\n" for host in hosts)


def trials_file(plans: Sequence[Plan], programs: Sequence[Program], command: str) -> RenderedFile:
    """`tune.sh`: the launch scripts of the trials, one after another."""
    note = f"Trials of {len(plans)} plans, the first of which follows."
    text = fill(
        "tune.sh.j2",
        plans[0],
        programs[0],
        header=header(plans[0], programs[0], command, (note,)),
        trials=len(plans),
        mark=TRIAL,
        log=TRIAL_LOG,
    )
    return RenderedFile(path="tune.sh", text=text, executable=True)


LAUNCHER: Final = Launcher(
    name="shell",
    keys=frozenset({"hosts", "launcher", "ssh_port", "master_port"}),
    files=launch_files,
    start="{}/launch.sh",
    file="launch.sh",
    trials=trials_file,
    scheduler=Scheduler(submit=("{file}",), trial=None, identity=None),
)
