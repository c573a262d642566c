"""Plain machines and scale sets: one script that starts torchrun on every host over ssh or pdsh."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ...search.plan import Plan
from ..launching.write import (
    Raw,
    ending_values,
    environment,
    fill,
    fill_pick,
    header,
    launch_options,
    processes_per_node,
)
from ..program import TRIAL, TRIAL_LOG, Launcher, Program, RenderedFile, Scheduler


def launch_files(plan: Plan, program: Program, command: str) -> tuple[RenderedFile, ...]:
    """`launch.sh`, and `hostfile` when the spec names the hosts and the job has more than one
    node.
    """
    options: Mapping[str, Any] = launch_options(plan)
    text = fill(
        "shell/launch.sh.j2",
        plan,
        program,
        header=header(plan, program, command),
        environment=tuple(f"{name}={value}" for name, value in environment(plan, program).items()),
        pdsh=options.get("launcher", "ssh") == "pdsh",
        ssh_port=int(options.get("ssh_port", 22)),
        master_port=int(options.get("master_port", 29500)),
        hostfile=_default_hostfile(options),
        **ending_values(plan, program),
        named="hosts" not in options and "hostfile" in options,
    )
    script = RenderedFile(path="launch.sh", text=text, executable=True)
    return (script, *_hostfiles(options, plan.job.nodes, processes_per_node(plan)))


def _default_hostfile(options: Mapping[str, Any]) -> object:
    """Where launch.sh looks for its hostfile: beside itself, unless the spec only names a file."""
    beside = Raw('"$CONFIG_DIR"/hostfile')
    return beside if "hosts" in options else options.get("hostfile", beside)


def _hostfiles(options: Mapping[str, Any], nodes: int, slots: int) -> tuple[RenderedFile, ...]:
    """DeepSpeed's form, one `host slots=N` a line; the first host is the master."""
    hosts: Sequence[str] = options.get("hosts", ())
    if nodes == 1 or not hosts:
        return ()
    text = "".join(f"{host} slots={slots}\n" for host in hosts[:nodes])
    return (RenderedFile(path="hostfile", text=text),)


def pick_file(plans: Sequence[Plan], _: RenderedFile, command: str) -> tuple[RenderedFile, ...]:
    """`launch.sh` of an elastic job, which runs the plan for as many hosts as the hostfile names,
    and that file.
    """
    options: Mapping[str, Any] = launch_options(plans[0])
    text = fill_pick("shell/pick.sh.j2", plans, command, hostfile=_default_hostfile(options))
    script = RenderedFile(path="launch.sh", text=text, executable=True)
    return (script, *_hostfiles(options, plans[0].job.nodes, processes_per_node(plans[0])))


def trials_file(plans: Sequence[Plan], programs: Sequence[Program], command: str) -> RenderedFile:
    """`tune.sh`: the launch scripts of the trials, one after another."""
    note = f"Trials of {len(plans)} plans, the first of which follows."
    text = fill(
        "shell/tune.sh.j2",
        plans[0],
        programs[0],
        header=header(plans[0], programs[0], command, (note,)),
        trials=len(plans),
        limit_s=max(plan.job.launch.time_limit_s or 0 for plan in plans),  # 0: no limit
        mark=TRIAL,
        log=TRIAL_LOG,
    )
    return RenderedFile(path="tune.sh", text=text, executable=True)


LAUNCHER: Final = Launcher(
    name="shell",
    reads_overrides=True,
    files=launch_files,
    start="{}/launch.sh",
    file="launch.sh",
    trials=trials_file,
    pick=pick_file,
    token="run hf auth login on each node",
    scheduler=Scheduler(submit=("{file}",), trial=None, identity=None),
)
