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
from ...text.options import Argument

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
#: Options of deepspeed that choose hosts or their GPUs.
_CHOOSE: Final = ("--hostfile", "--include", "--exclude", "--no_ssh")
#: GPUs by their numbers or identifiers: `0,1`, `GPU-8a5b`. Other text is still to be filled in.
DEVICES: Final = lazy_pattern(
    r"(?:[0-9]{1,3}|GPU-[\w-]+|MIG-[\w-]+)(?:,(?:[0-9]{1,3}|GPU-[\w-]+|MIG-[\w-]+))*"
)
#: An address that is another machine on each node.
LOOPBACK: Final = lazy_pattern(r"(?:localhost|127\.0\.0\.1|\[?::1\]?)(?::[0-9]+)?")
#: The node's own name, as the whole of a value.
OWN_NAME: Final = lazy_pattern(
    r"[\"']?(?:\$\(hostname\b[^)]*\)|`hostname\b[^`]*`|\$\{?HOSTNAME\}?)[\"']?"
)
#: Where torchrun has the nodes from without --nnodes: torch/distributed/argparse_util.py @ 2.13.
_NODES_VARIABLE: Final = "PET_NNODES"
#: torchrun's --nnodes: N or MIN:MAX.
NODE_RANGE: Final = lazy_pattern(r"\d{1,9}(?::\d{1,9})?", re.ASCII)
#: deepspeed/constants.py, TORCH_DISTRIBUTED_DEFAULT_PORT @ 0.19.8; accelerate's is the same
_DEFAULT_PORT: Final = 29500
#: The port at the end of an endpoint: `host:29500`.
_ENDPOINT_PORT: Final = lazy_pattern(r":(\d{1,5})\Z", re.ASCII)


def meets_itself(call: Call) -> bool:
    """Return whether torchrun is told that there is one node, which meets itself: a training of its
    own wherever the line is started.
    """
    nodes, address = call.integer("--nnodes"), call.text("--master-addr")
    is_one = call.program == "torchrun" and nodes is not None and nodes.value == 1
    return is_one and address is not None and bool(LOOPBACK.fullmatch(address.value))


def accelerate_config(submission: Submission, launch: Launch) -> YamlDocument | None:
    """The file that --config_file of accelerate names on a launch line, where it was read."""
    links = (link for link in submission.references if link.launch is launch)
    named = [
        document
        for link in links
        if link.kind == "accelerate config"
        for document in link.documents
    ]
    return named[0] if len(named) == 1 and isinstance(named[0], YamlDocument) else None


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
        """The nodes of the call; those of its script where an unknown word counts them."""
        written = self.argument(NODES[self.program])
        if self.program != "torchrun":
            number = self.integer(NODES[self.program])
            is_unknown = written is not None and written.value is None
            if self.program == "accelerate" and is_unknown:
                return self.script_nodes
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
        of_job = self._holder.node_number if self._holder is not None else None
        return of_job or "$SLURM_NODEID"

    @property
    def first_node(self) -> str:
        """An expression for the address of the first node."""
        of_job = self._holder.first_node if self._holder is not None else None
        return of_job or '$(scontrol show hostnames "$SLURM_JOB_NODELIST" | sed -n 1p)'

    @property
    def script_nodes(self) -> int | None:
        """The nodes that the script's own directives ask for; None where they ask for none."""
        return self.submission.nodes_of_script(self.shell)

    @cached_property
    def config(self) -> YamlDocument | None:
        """The file that accelerate's --config_file names, where it was read."""
        return accelerate_config(self.submission, self.launch)

    def setting(self, name: str) -> object:
        """What accelerate's config file says of what an option doesn't; None where neither does.

        Ask `is_settled` first whether the file is known.
        """
        return self.config.value(name) if self.config is not None else None

    @property
    def is_settled(self) -> bool:
        """Return whether what no option says is known, as a file that was read or none has it."""
        return not self.opaque and (self.config is not None or not self.has("--config_file"))

    @property
    def backend(self) -> str:
        return (self.options.text("--launcher") or "pdsh").lower()

    @cached_property
    def hostfile(self) -> Hostfile | None:
        """The hostfile that deepspeed is given, where it is one of the submission's documents."""
        path = self.options.text("--hostfile")
        if path is None:
            return None
        name = PurePath(path).name
        files = [file for file in self.submission.of(Hostfile) if PurePath(file.path).name == name]
        return files[0] if len(files) == 1 else None

    @property
    def is_local(self) -> bool:
        """Return whether deepspeed starts ranks on its own node only."""
        return not self.has("--hostfile", "--no_ssh") and not self.opaque

    def is_argument(self, name: str) -> bool:
        """Return whether the value of an option is an argument of the script that is 1 by default:
        `${1:-1}`.
        """
        option = self.options.get(name)
        if option is None or self.options.integer(name) != 1:
            return False
        # An argument of the script is a variable whose name is a number.
        return any(is_whole(variable) for word in option.values for variable in word.variables)

    def processes(self, *, outermost: bool) -> tuple[int, str] | None:
        """The number of processes on all nodes together, and the options that set it.

        `outermost` says that nothing repeats the call, such as srun on each node.

        Source: torch/distributed/run.py @ 2.13 (`--nnodes` is 1:1 unless it is given),
        deepspeed/launcher/runner.py @ 0.19.8 (`--include` names hosts and slots),
        accelerate/commands/launch.py @ 1.15 (`--num_processes` is all).
        """
        slots = self._included_slots()
        if slots is not None:
            return slots

        option = TOTALS.get(self.program) or PER_NODE.get(self.program, "")
        count = self.integer(option)
        if count is None:
            return self._visible_gpus() if outermost else None
        text = f"{option} {count.value}"
        if self.program in TOTALS:
            return count.value, text

        nodes_option = NODES[self.program]
        nodes = self.integer(nodes_option)
        if self.is_argument(nodes_option):
            return None
        if nodes is not None:
            return nodes.value * count.value, f"{nodes_option} {nodes.value} × {text}"
        variable = self.launch.environment.get(_NODES_VARIABLE)
        if self.program == "torchrun" and variable is not None and not self.has("--standalone"):
            written = variable.value or ""
            if not is_whole(written):
                return None
            return whole(written) * count.value, f"{_NODES_VARIABLE}={written} × {text}"
        is_alone = self.has("--standalone") or (outermost and not self.has("--hostfile"))
        return (count.value, text) if is_alone and not self.has(nodes_option) else None

    def _visible_gpus(self) -> tuple[int, str] | None:
        """The GPUs that CUDA_VISIBLE_DEVICES shows a launcher that starts a rank on each it sees.

        Source: deepspeed/launcher/runner.py @ 0.19.8 (main), torch/distributed/run.py @ 2.13.0
        (determine_local_world_size).
        """
        visible = self.launch.environment.get("CUDA_VISIBLE_DEVICES")
        if visible is None or not DEVICES.fullmatch(visible.value or ""):
            return None
        if self.program == "deepspeed":
            takes_all = not self.has(*_CHOOSE, "--num_gpus", "--num_nodes")
        else:
            takes_all = self.options.text("--nproc-per-node") in ("gpu", "auto") and self.nodes == 1
        number = len((visible.value or "").split(","))
        return (number, f"on CUDA_VISIBLE_DEVICES={visible.value}") if takes_all else None

    def _included_slots(self) -> tuple[int, str] | None:
        """The slots that deepspeed's --include names, and the option: 6 of `a:0,1,2,3@b:0,1`.

        None without the option, and where a host has no slots behind it: these are all that the
        hostfile has.
        """
        include = (self.options.text("--include") or "") if self.program == "deepspeed" else ""
        hosts = [
            [slot.strip() for slot in host.partition(":")[2].split(",")]
            for host in include.split("@")
        ]
        if not all(is_whole(slot) for slots in hosts for slot in slots):
            return None
        return sum(len(set(slots)) for slots in hosts), f"--include {include}"


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
    calls = filter(None, (launch.call(program) for program in PORTS))
    rendezvous = (call for call in calls if not (call.opaque or call.has("--standalone")))
    call = next(rendezvous, None)
    if call is None:
        return None
    name = PORTS[call.program]
    endpoint = call.argument("--rdzv-endpoint")
    port = call.argument(name)
    number = call.integer(name)
    if call.program == "torchrun" and endpoint is not None and endpoint.option.values:
        return _port_of_endpoint(call, endpoint)
    if port is not None:
        if not number or not number.value:
            return None
        return Port(number=number.value, text=str(port), where=port.where, call=call, option=name)
    if call.program == "torchrun" or "MASTER_PORT" in launch.environment:
        return None
    used, text = _DEFAULT_PORT, f"{call.program} uses port {_DEFAULT_PORT}"
    if call.program == "accelerate" and call.has("--config_file"):
        # A file that wasn't read may have a port; of one process none is used.
        if config is None or config.value("distributed_type") == "NO":
            return None
        in_config = config.value("main_process_port")
        if isinstance(in_config, bool) or not isinstance(in_config, int | None) or in_config == 0:
            return None  # 0 is any port that is free
        if in_config is not None:
            used, text = in_config, f"accelerate uses port {in_config} of {config.path}"
    return Port(number=used, text=text, where=call.where, call=call, option=name)


def _port_of_endpoint(call: Call, endpoint: Argument[str | None]) -> Port | None:
    """The port at the end of torchrun's --rdzv-endpoint, whose host may be a variable."""
    parts = endpoint.option.values[0].parts or ("",)
    match = _ENDPOINT_PORT.search(parts[-1] or "")
    if match is None or match[1] == "0":  # 0 is any port that is free
        return None
    return Port(
        number=whole(match[1]),
        text=f"torchrun {endpoint.name} ends in port {match[1]}",
        where=endpoint.where,
        call=call,
        option="--rdzv-endpoint",
    )


def own_rendezvous(call: Call) -> str:
    """The option with which torchrun reads no --master-port and no --node-rank; empty without one.

    Source: pytorch/pytorch torch/distributed/run.py @ 2.13.0 (config_from_args, run).
    """
    if call.program != "torchrun":
        return ""
    if call.has("--standalone"):
        return "--standalone"
    backend = call.text("--rdzv-backend")
    is_own = backend is not None and backend.value != "static"
    return f"--rdzv-backend={backend.value}" if backend is not None and is_own else ""
