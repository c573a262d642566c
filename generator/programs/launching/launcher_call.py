"""Calls of torchrun, deepspeed and accelerate, as they read them: nodes, ports, hostfiles."""

from __future__ import annotations

import re
from functools import cached_property
from pathlib import PurePath
from typing import Final

from ...dataclass import dataclass
from ...findings import Location
from ...numerals import is_whole, whole
from ...patterns import lazy_pattern
from ...submission.launches import Call, Launch
from ...submission.script import CommandDocument
from ...submission.submission import Submission
from ...text.document import YamlDocument
from ...text.hostfile import Hostfile

#: Programs that start the rest of the line on every node.
ON_EVERY_NODE: Final = frozenset({"srun", "mpirun", "pdsh", "ssh"})
NODES: Final = {"torchrun": "--nnodes", "deepspeed": "--num_nodes", "accelerate": "--num_machines"}
PER_NODE: Final = {"torchrun": "--nproc-per-node", "deepspeed": "--num_gpus"}
#: Options that set how many processes a launcher starts in all.
TOTALS: Final = {"accelerate": "--num_processes", "mpirun": "--np"}
PORTS: Final = {
    "torchrun": "--master-port",
    "deepspeed": "--master_port",
    "accelerate": "--main_process_port",
}
#: Arguments of a training program that say that DeepSpeed trains.
WITH_ENGINE: Final = frozenset({"--deepspeed", "--deepspeed_config", "--deepspeed-config"})
#: Arguments of a training program that say that DeepSpeed or Megatron trains.
TRAINING: Final = WITH_ENGINE | {"--tensor-model-parallel-size"}
#: Options for the address at which the nodes meet.
ADDRESSES: Final = ("--master-addr", "--rdzv-endpoint", "--master_addr", "--main_process_ip")
#: An address that is another machine on each node.
LOOPBACK: Final = lazy_pattern(r"(?:localhost|127\.0\.0\.1|\[?::1\]?)(?::[0-9]+)?")
#: torchrun's --nnodes: N or MIN:MAX.
#: Where torchrun has the nodes from without --nnodes: torch/distributed/argparse_util.py @ 2.13.
_NODES_VARIABLE: Final = "PET_NNODES"
NODE_RANGE: Final = lazy_pattern(r"\d{1,9}(?::\d{1,9})?", re.ASCII)
#: deepspeed/constants.py, TORCH_DISTRIBUTED_DEFAULT_PORT @ 0.19.8; accelerate's is the same
_DEFAULT_PORT: Final = 29500
_ENDPOINT_PORT: Final = lazy_pattern(r":(\d{1,5})\Z", re.ASCII)


def meets_itself(call: Call) -> bool:
    """Return whether torchrun is told that there is one node, which meets itself: a training of its
    own wherever the line is started.
    """
    nodes, address = call.integer("--nnodes"), call.text("--master-addr")
    is_one = call.program == "torchrun" and nodes is not None and nodes.value == 1
    return is_one and address is not None and bool(LOOPBACK.fullmatch(address.value))


@dataclass(frozen=True, kw_only=True)
class LauncherCall(Call):
    """One call, with the launch line and the submission that it is part of."""

    launch: Launch
    submission: Submission

    @property
    def is_innermost(self) -> bool:
        """Return whether it starts the training program itself."""
        return self.launch.calls[-1].word is self.word

    @cached_property
    def nodes(self) -> int | None:
        """The nodes of the call; of a torchrun with unknown words, those of its script."""
        written = self.argument(NODES[self.program])
        if self.program != "torchrun":
            number = self.integer(NODES[self.program])
            return number.value if number else None

        # torchrun runs on one node by default, and takes a range such as 1:4.
        if written is None:
            return None if self.opaque or _NODES_VARIABLE in self.launch.environment else 1
        if written.value is None:
            return self.script_nodes
        match = NODE_RANGE.fullmatch(written.value.strip())
        return whole(match[0].rpartition(":")[2]) if match else None

    @property
    def in_file(self) -> bool:
        """Return whether its script is a file; a command of AzureML runs elsewhere."""
        return any(script.shell is self.shell for script in self.submission.scripts)

    @cached_property
    def _holder(self) -> CommandDocument | None:
        """The job whose command has this call; None of a script's."""
        jobs = (job for job in self.submission.services if job.script is not None)
        return next((job for job in jobs if job.script and job.script.shell is self.shell), None)

    @property
    def in_task(self) -> bool:
        """Return whether what runs the command tells each node its number."""
        return self._holder is not None and self._holder.node_number is not None

    @property
    def node_number(self) -> str:
        """The variable that has a node's own number, of whatever runs the script."""
        stated = self._holder.node_number if self._holder is not None else None
        return stated or "$SLURM_NODEID"

    @property
    def first_node(self) -> str:
        """An expression for the address of the first node."""
        stated = self._holder.first_node if self._holder is not None else None
        return stated or '$(scontrol show hostnames "$SLURM_JOB_NODELIST" | sed -n 1p)'

    @property
    def script_nodes(self) -> int | None:
        """The nodes that the script's own directives ask for; None where they ask for none."""
        return self.submission.nodes_of_script(self.shell)

    @property
    def backend(self) -> str:
        return (self.options.text("--launcher") or "pdsh").lower()

    @cached_property
    def hostfile(self) -> Hostfile | None:
        """The hostfile that deepspeed is given, where it is one of the submission's documents."""
        text, present = self.options.text("--hostfile"), self.submission.of(Hostfile)
        names = [
            file
            for file in present
            if text is not None and PurePath(file.path).name == PurePath(text).name
        ]
        return names[0] if len(names) == 1 else None

    @property
    def is_local(self) -> bool:
        """Return whether deepspeed starts ranks on its own node only."""
        return not self.has("--hostfile", "--no_ssh") and not self.opaque

    def is_argument(self, name: str) -> bool:
        """Return whether the value of an option is 1 unless the script is given another one."""
        option = self.options.get(name)
        words = option.values if option is not None and self.options.integer(name) == 1 else ()
        return any(is_whole(variable) for word in words for variable in word.variables)

    def processes(self, *, outermost: bool) -> tuple[int, str] | None:
        """The number of processes on all nodes together, and the options that set it.

        `outermost` says that nothing repeats the call, such as srun on each node.

        Source: torch/distributed/run.py @ 2.13 (`--nnodes` is 1:1 unless it is given),
        deepspeed/launcher/runner.py @ 0.19.8 (`--include` names hosts and slots),
        accelerate/commands/launch.py @ 1.15 (`--num_processes` is all).
        """
        include = (self.options.text("--include") or "") if self.program == "deepspeed" else ""
        hosts = [
            [slot.strip() for slot in host.partition(":")[2].split(",")]
            for host in include.split("@")
        ]
        if all(is_whole(slot) for slots in hosts for slot in slots):  # 6 of `a:0,1,2,3@b:0,1`
            return sum(len(set(slots)) for slots in hosts), f"--include {include}"

        option = TOTALS.get(self.program) or PER_NODE.get(self.program, "")
        count = self.integer(option)
        if count is None or self.program in TOTALS:
            return (count.value, f"{option} {count.value}") if count else None

        nodes, name = self.integer(NODES[self.program]), NODES[self.program]
        if self.is_argument(name):
            return None
        if nodes is not None:
            return nodes.value * count.value, f"{name} {nodes.value} × {option} {count.value}"
        variable = self.launch.environment.get(_NODES_VARIABLE)
        if self.program == "torchrun" and variable is not None and not self.has("--standalone"):
            written = variable.value or ""
            words = f"{_NODES_VARIABLE}={written} × {option} {count.value}"
            return (whole(written) * count.value, words) if is_whole(written) else None
        alone = self.has("--standalone") or (outermost and not self.has("--hostfile"))
        return (count.value, f"{option} {count.value}") if alone and not self.has(name) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Port:
    """The port of a launch line that is the same in every job."""

    number: int
    text: str  #: what sets it
    where: Location
    call: Call
    option: str  #: that sets it, or could

    def instead(self, expression: str) -> str:
        if self.option == "--rdzv-endpoint":
            return f'--rdzv-endpoint="$MASTER_ADDR:{expression}"'
        return f"{self.option} {expression}"


def fixed_port(launch: Launch, config: YamlDocument | None = None) -> Port | None:
    """The port that a launch line always takes; None where it differs, or can't be known.

    `config` is the file that `accelerate launch --config_file` names, where it was read.
    """
    calls = (
        call for program in PORTS if (call := launch.call(program)) is not None and not call.opaque
    )
    call = next((call for call in calls if not call.has("--standalone")), None)
    if call is None:
        return None
    name = PORTS[call.program]
    endpoint = call.argument("--rdzv-endpoint")
    port = call.argument(name)
    number = call.integer(name)
    if call.program == "torchrun" and endpoint is not None and endpoint.option.values:
        match = _ENDPOINT_PORT.search((endpoint.option.values[0].parts or ("",))[-1] or "")
        if match is None or match[1] == "0":
            return None
        text = f"torchrun {endpoint.name} ends in port {match[1]}"
        return Port(
            number=whole(match[1]),
            text=text,
            where=endpoint.where,
            call=call,
            option="--rdzv-endpoint",
        )
    if port is not None:
        used = number.value if number else 0
        if used:
            return Port(number=used, text=str(port), where=port.where, call=call, option=name)
        return None
    if call.program == "torchrun" or "MASTER_PORT" in launch.environment:
        return None
    used, text = _DEFAULT_PORT, f"{call.program} uses port {_DEFAULT_PORT}"
    if call.program == "accelerate" and call.has("--config_file"):
        # A file that wasn't read may have a port; of one process none is used.
        if config is None or config.value("distributed_type") == "NO":
            return None
        stated = config.value("main_process_port")
        if isinstance(stated, bool) or not isinstance(stated, int | None) or stated == 0:
            return None  # 0 is any port that is free
        if stated is not None:
            used, text = stated, f"accelerate uses port {stated} of {config.path}"
    return Port(number=used, text=text, where=call.where, call=call, option=name)
