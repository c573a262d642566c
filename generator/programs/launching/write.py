"""Parts of every launch file: environment, argument lines, header comments, templates."""

from __future__ import annotations

import json
import re
import shlex
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final

import yaml

from ...dataclass import dataclass
from ...estimate.layout_words import stage_in_words
from ...job.needs import PATHS, listed_versions, spec_values
from ...job.records import Job
from ...patterns import lazy_pattern
from ...resources import read_text
from ...rules.job.data import filled_in
from ...search.plan import Plan
from ...version import __version__
from ..program import (
    OVERRIDES,
    ArgumentGroup,
    ConfigPath,
    Program,
    RenderedFile,
    epochs,
    last_step,
    length_words,
    resumes,
    step_option,
)
from . import fabric

if TYPE_CHECKING:
    from jinja2 import Environment

#: Control signs and ends of lines, which would end a comment or a directive.
_UNPRINTABLE = lazy_pattern(r"[\x00-\x1f\x7f\x85\u2028\u2029]+")
_NOT_IN_NAMES = lazy_pattern(r"[^A-Za-z0-9._-]+")
#: A word that needs no quotes for a shell, with a comma in it.
_PLAIN_WITH_COMMA = lazy_pattern(r"[A-Za-z0-9_@%+=:./-]*,[A-Za-z0-9_@%+=:./,-]*")
#: A word that begins with a dash and is a value.
_NEGATIVE_NUMBER = lazy_pattern(r"-\.?[0-9]")
#: Go's parser takes `1e-5` for a number and `y` for true, PyYAML takes both for text. What is text
#: to every parser without quotes: a word that begins with a letter, a path, or an option's dashes.
_PLAIN: Final = lazy_pattern(r"(?:--?|[$]|\.{1,2}/)?[A-Za-z_/](?:[\w./:@=-]*[\w/])?", re.ASCII)
#: Words that some parser of YAML reads as a truth value, as nothing or as a number.
_OTHER: Final = frozenset(
    {"y", "yes", "n", "no", "on", "off", "true", "false", "null", "nan", "inf"}
)
THREADS: Final = "OMP_NUM_THREADS"
#: Variables that name a network interface of the host.
_OF_INTERFACES: Final = frozenset({"GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"})


@dataclass(frozen=True, slots=True)
class Raw:
    """Text that is already shell code or a comment; the templates don't quote it again."""

    text: str


def shell_word(value: object) -> str:
    """One shell word for a value: quoted, unless it is `Raw`.

    A `ConfigPath` is looked up in `$CONFIG_DIR` at run time.
    """
    if isinstance(value, Raw):
        return value.text
    if isinstance(value, ConfigPath):
        return f'"$CONFIG_DIR"/{shlex.quote(value.name)}'
    text = str(value)
    # A comma needs no quotes, but in a bash array it looks like a mistake, to readers and to
    # shellcheck.
    return f"'{text}'" if _PLAIN_WITH_COMMA.fullmatch(text) else shlex.quote(text)


def option_lines(arguments: Iterable[str | ConfigPath]) -> Iterator[tuple[str | ConfigPath, ...]]:
    """An option together with the values after it, one tuple a line."""
    line: list[str | ConfigPath] = []
    for argument in arguments:
        option = (
            isinstance(argument, str)
            and argument.startswith("-")
            and not _NEGATIVE_NUMBER.match(argument)
        )
        if line and option:
            yield tuple(line)
            line = []
        line.append(argument)
    if line:
        yield tuple(line)


def comment(text: str, *, indent: str = "", width: int = 110) -> Raw:
    """Write `text` as comment lines of at most `width` characters.

    A line break in the text can't end the comment.
    """
    plain = _UNPRINTABLE.sub(" ", text)
    lines = textwrap.wrap(plain, width=width, break_long_words=False, break_on_hyphens=False)
    return Raw("\n".join(f"{indent}# {line}".rstrip() for line in lines or [""]))


def plain_name(text: str) -> str:
    """Write `text` with each run of characters outside `A-Za-z0-9._-` as one dash.

    Returns `job` when nothing is left.
    """
    return _NOT_IN_NAMES.sub("-", text).strip("-.") or "job"


def sbatch_word(value: object) -> Raw:
    """Write a value of an #SBATCH line.

    sbatch takes backslash and double quotes as a shell does, and expands nothing.
    """
    text = _UNPRINTABLE.sub(" ", str(value))
    if re.fullmatch(r"[A-Za-z0-9._,:/@%+=\[\]&|*()-]+", text):
        return Raw(text)
    return Raw('"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"')


class _Dumper(yaml.SafeDumper):
    """Writes YAML as people do: lists are indented, and anchors are `same1`, not `id001`."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)

    def generate_anchor(self, node: yaml.Node) -> str:
        number = super().generate_anchor(node)
        return f"same{number.removeprefix('id').lstrip('0')}"


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    style = _style(value, dumper.best_width)
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


def _style(value: str, width: int) -> str | None:
    """The sign of the YAML style in which a text reads best; None where it needs none."""
    if _PLAIN.fullmatch(value) and value.lower() not in _OTHER:
        return None
    if "\n" in value:
        return "|"
    if not value.isprintable():
        return '"'
    can_be_folded = "  " not in value and value == value.strip()
    return ">" if len(value) > width and can_be_folded else "'"


_Dumper.add_representer(str, _text)


def yaml_text(document: Any, width: int = 1000) -> str:
    """The YAML of plain data, with keys in their order.

    Lines have at most `width` characters where text can be folded.
    """
    return yaml.dump(
        document,
        Dumper=_Dumper,
        sort_keys=False,
        allow_unicode=True,
        width=width,
        default_flow_style=False,
    )


def environment(plan: Plan, program: Program) -> dict[str, str]:
    """Variables of every process, by name.

    They are the launcher's, the network's, the framework's and the user's; of one name the last
    wins.
    """
    cores = cores_per_node(plan)
    threads = {THREADS: str(max(1, cores // processes_per_node(plan)))} if cores else {}
    network = {**fabric.variables(plan.job), **fabric.allocator(plan)}
    return {**threads, **network, **program.environment, **plan.job.launch.environment}


def pod_environment(plan: Plan, program: Program) -> dict[str, str]:
    """`environment` of a pod, whose network interfaces are not the host's.

    NCCL finds them by itself where nobody names one.
    """
    set_on_purpose = {*program.environment, *plan.job.launch.environment}
    left_out = _OF_INTERFACES - set_on_purpose
    values = environment(plan, program)
    return {name: value for name, value in values.items() if name not in left_out}


def cores_per_node(plan: Plan) -> int | None:
    """Cores that the job has on each node; `None` if not known.

    They are those asked for, else the share of the accelerators that the job uses.
    """
    asked = launch_options(plan).get("cpus_per_task")
    if isinstance(asked, int):
        return asked
    cluster = plan.job.cluster
    if cluster.cpu_cores is None:
        return None
    return max(1, cluster.cpu_cores * processes_per_node(plan) // cluster.accelerators_per_node)


def own_threads(plan: Plan, program: Program) -> bool:
    """Return whether the launcher sets OMP_NUM_THREADS, to a process's share of the cores."""
    return THREADS not in {*program.environment, *plan.job.launch.environment}


def processes_per_node(plan: Plan) -> int:
    """One process per accelerator that is used.

    These are all of a node's, or fewer in a job smaller than one node.
    """
    return min(plan.job.gpus, plan.job.cluster.accelerators_per_node)


def header(
    plan: Plan, program: Program, command: str, notes: tuple[str, ...] = ()
) -> tuple[Raw, ...]:
    """Comment lines for the top of a file.

    They say what made it, what it runs, and the choices that a reader would question.
    """
    job = plan.job
    defaults = ", ".join(f"{key} ({value})" for key, value in filled_in(job).items())
    lines = (
        f"Written for {listed_versions(job)}.",
        *([f"The job doesn't set {defaults}: these are dsgen's defaults."] if defaults else []),
        *notes,
        *program.notes,
    )
    return (*what_runs(plan, command), *(comment(line) for line in lines))


def what_runs(plan: Plan, command: str) -> tuple[Raw, ...]:
    """Comment lines that say what made a file, and the job and layout that it is for."""
    job, layout = plan.job, plan.layout
    stage = stage_in_words(layout, job.engine)
    lines = (
        f"Written by dsgen {__version__}: {command}",
        f"Job {job.name}: {job.framework} trains {job.model.name} on {job.nodes} × "
        f"{job.cluster.name}.",
        f"{job.gpus} GPUs = {layout.data} data × {layout.tensor} tensor × "
        f"{layout.pipeline} pipeline × "
        f"{layout.context} context; {stage}, recompute {layout.recompute.label}, "
        f"offload {layout.offload.label}.",
        f"{layout.global_batch} sequences a step = {layout.micro_batch} micro batch × "
        f"{layout.gradient_accumulation} accumulated × {layout.data} data. plan.json has the "
        "estimates and reasons.",
    )
    return tuple(comment(line) for line in lines)


def argument_lines(groups: Iterable[ArgumentGroup], indent: str = "") -> tuple[Raw, ...]:
    """Shell text of arguments.

    Each group has a comment, and each option a line with its values.
    """
    lines: list[Raw] = []
    for group in groups:
        lines.append(comment(group.comment, indent=indent))
        one_a_line = ((word,) for word in group.arguments)
        words_of_lines = one_a_line if group.listed else option_lines(group.arguments)
        lines += [Raw(indent + " ".join(map(shell_word, words))) for words in words_of_lines]
    return tuple(lines)


def overrides_file(plan: Plan, program: Program, command: str, file: str) -> RenderedFile:
    """`overrides.txt`: the words that the launch script reads, one a line, as they are."""
    note = (
        f"Overrides for {program.script}, one a line: {file} hands them on as they are, so that "
        "they have no quotes for a shell. A line that begins with # says why."
    )
    lines = list(header(plan, program, command, (note,)))
    for group in program.groups:
        if group.listed:
            lines += [
                Raw(""),
                comment(group.comment),
                *(Raw(str(word)) for word in group.arguments),
            ]
    return RenderedFile(path=OVERRIDES, text="".join(f"{line.text}\n" for line in lines))


def not_mounted(job: Job, mounted: Iterable[str], key: str) -> Iterator[str]:
    """Notes on absolute paths of data and output that are in no mounted folder.

    `key` of the spec mounts a folder.
    """
    folders = [PurePosixPath(path) for path in mounted]
    data, output = list[str](), list[str]()
    for name, values in spec_values(job).items():
        for path in values if name in PATHS else ():
            is_mounted = any(map(PurePosixPath(path).is_relative_to, folders))
            text, texts = f"{name} {path}", output if name.startswith("output.") else data
            if path.startswith("/") and not is_mounted and text not in texts:
                texts.append(text)
    for texts, consequence in (
        (data, f": set {key}, or use the image"),
        (output, f", and lost with the machine: see {key}"),
    ):
        if texts:
            verb = "is" if len(texts) == 1 else "are"
            yield f"{' and '.join(texts)} {verb} on no mounted volume{consequence}."


def ending_values(plan: Plan, program: Program) -> dict[str, object]:
    """Values of `launching/ends.j2`, by which every target asks whether the last step is saved."""
    form = plan.job.framework.checkpoints
    return {
        "checkpoints": plan.job.output.checkpoints or "",
        "tracker": form.tracker,
        "folder": form.folder,
        "names_folder": form.names_folder,
        "last_step": last_step(plan, program),
        "epochs": epochs(plan, program),
        "resumes": resumes(plan),
    }


def yaml_file(
    path: str,
    plan: Plan,
    program: Program,
    command: str,
    notes: Iterable[str],
    *documents: Any,
    width: int = 1000,
) -> RenderedFile:
    """A file of YAML documents with a header on top.

    At the top of a document, what is null or an empty mapping is left out.
    """
    top = "\n".join(line.text for line in header(plan, program, command, tuple(notes)))
    kept = (
        {key: value for key, value in document.items() if value not in (None, {})}
        for document in documents
    )
    return RenderedFile(
        path=path, text=f"{top}\n\n" + "---\n".join(yaml_text(document, width) for document in kept)
    )


def launch_options(plan: Plan) -> Mapping[str, Any]:
    """The spec's `launch.<target>`, without keys set to null."""
    return {key: value for key, value in plan.job.launch.options.items() if value is not None}


def arguments_file(plan: Plan, program: Program, command: str, file: str) -> RenderedFile:
    """`arguments.txt`: what the script is called with.

    It is for people to read, and for launchers that dsgen doesn't write.
    """
    has_paths = any(isinstance(argument, ConfigPath) for argument in program.arguments)
    folder = " CONFIG_DIR is the folder of this file." if has_paths else ""
    notes = (
        f"Arguments of {program.script} with the reason for each group. No program reads this "
        f"file: {file} has its own "
        f"copy. For another launcher, they are quoted for a POSIX shell.{folder}",
        "One process per GPU; the launcher sets RANK, LOCAL_RANK, WORLD_SIZE, "
        "MASTER_ADDR and MASTER_PORT.",
    )
    lines = (*header(plan, program, command, notes), Raw(""), *argument_lines(program.groups))
    return RenderedFile(path="arguments.txt", text="".join(f"{line.text}\n" for line in lines))


@cache
def _templates() -> Environment:
    """Undefined names fail, and every value is quoted for a shell unless it is `Raw`."""
    from jinja2 import Environment, FunctionLoader, StrictUndefined  # here, to save start-up time

    return Environment(
        loader=FunctionLoader(lambda name: read_text("dsgen.templates", name)),
        undefined=StrictUndefined,
        finalize=shell_word,
        autoescape=False,
        comment_start_string="{##",  # bash has {# in ${#array[@]}
        comment_end_string="##}",
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def fill_pick(name: str, plans: Sequence[Plan], command: str, **values: object) -> str:
    """Fill in template `name`, which picks one of an elastic job's plans.

    The largest plan comes first.
    """
    job, layout = plans[0].job, plans[0].layout
    least, most = plans[-1].job.nodes, job.nodes
    nodes = f"{least} to {most}" if least < most else str(most)
    replica = f"{layout.tensor} tensor × {layout.pipeline} pipeline × {layout.context} context"
    stage = stage_in_words(layout, job.engine)
    lines = (
        f"Written by dsgen {__version__}: {command}",
        f"Job {job.name}: {job.framework} trains {job.model.name} on {nodes} × {job.cluster.name}, "
        f"{layout.global_batch} sequences a step on each count.",
        f"Replicas are {replica} everywhere, {stage}. {across_counts(plans[0])}",
    )
    counts = tuple((plan.job.nodes, plan.job.gpus) for plan in plans)
    header = tuple(comment(line) for line in lines)
    return _templates().get_template(name).render(header=header, counts=counts, **values)


def across_counts(plan: Plan) -> str:
    """Say which checkpoints of an elastic job resume with another number of replicas."""
    if plan.job.engine.sharding == "distributed":
        return (
            "Distributed checkpoints (--ckpt-format torch_dist) resume with any number of replicas."
        )
    if plan.job.engine.sharding == "units":
        return "Sharded checkpoints resume with any number of replicas."
    if plan.layout.zero_stage == 0:
        return (
            "A checkpoint has the whole optimizer state, and resumes with any number of replicas."
        )
    return (
        "DeepSpeed refuses ZeRO's states with another number of replicas: when the count "
        "changes, the launch file "
        "says how to convert the checkpoint, and loads what was converted."
    )


def _zero_states(plan: Plan, program: Program) -> dict[str, object]:
    """The templates' values on ZeRO's states, which a checkpoint has in a file for each rank.

    `data_ranks` is the number of these files; 0 where any number of ranks loads the checkpoint.

    **Source**: deepspeed/runtime/engine.py:4750 @ 0.19.8, where a rank is one of data times
    sequence parallelism.
    """
    job, layout = plan.job, plan.layout
    is_partitioned = (
        job.engine.sharding == "partitions"
        and layout.zero_stage > 0
        and job.output.checkpoints is not None
    )
    config = json.loads(program.files[0].text) if is_partitioned else {}
    checkpoint = config.get("checkpoint", {})
    checkpoint = checkpoint if isinstance(checkpoint, dict) else {}
    # What sed does to the config, so that it loads a universal checkpoint: it may have no key
    # twice.
    if "load_universal" in checkpoint:
        sed_script = 's/"load_universal": false/"load_universal": true/'
    elif "checkpoint" in config:
        comma = "," if checkpoint else ""
        sed_script = f's/^  "checkpoint": {{/&"load_universal": true{comma}/'
    else:
        sed_script = '1s/{/{ "checkpoint": {"load_universal": true},/'
    # Where nodes save on their own disks, none of them has all the files.
    is_shared = not checkpoint.get("use_node_local_storage")
    is_counted = is_partitioned and job.output.resume and is_shared
    return {
        "data_ranks": layout.data * layout.context if is_counted else 0,
        "universal_argument": job.framework.universal_option,
        "loads_universal": sed_script,
    }


def config_files(program: Program) -> tuple[str, ...]:
    """Names of the files that the program reads from `$CONFIG_DIR`."""
    overrides = (OVERRIDES,) if program.lists else ()
    return (*(file.path for file in program.files), *overrides)


def fill(name: str, plan: Plan, program: Program, **values: object) -> str:
    """The text of template `name`: what every script needs of plan and program, and `values`."""
    last_step_option = step_option(program)
    common: dict[str, object] = {
        "nodes": plan.job.nodes,
        "processes": processes_per_node(plan),
        "shares_cores": cores_per_node(plan) is not None and own_threads(plan, program),
        "config_files": config_files(program),
        "script": program.script,
        "as_module": Raw("-m ") if program.is_module else Raw(""),
        "arguments": argument_lines(program.groups, indent="  "),
        # where the rest of them is read from a file
        "direct_arguments": argument_lines(
            (group for group in program.groups if not group.listed), indent="  "
        ),
        "overrides": OVERRIDES if program.lists else None,
        "resume": program.resume,
        "length_words": length_words(program),
        "step_option": None if last_step_option is None else Raw(last_step_option),
        **_zero_states(plan, program),
    }
    return _templates().get_template(name).render({**common, **values})
