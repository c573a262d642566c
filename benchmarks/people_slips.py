"""Slips that people tell of in issues and forums, for `benchmarks.breaks`: how each is made, and
when it breaks a run.

Every kind is a way to change a line, and a condition: what the launcher, Slurm, YAML or the
arithmetic of Megatron does with the file before and after. Neither knows what `dsgen validate`
looks for.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

Change = tuple[int, str, str]  # line from 0, what it becomes, what was done
Changes = Callable[[list[str], random.Random], Iterator[Change]]
#: Of the repository, the file, its lines and a change.
Condition = Callable[[Path, Path, list[str], Change], bool]

LAUNCH_LINE: Final = re.compile(
    r"(?<![\w-])(?:torchrun|deepspeed|accelerate\s+launch|torch\.distributed\.(?:run|launch))\s"
)
_SBATCH: Final = re.compile(r"^#SBATCH\s+(--?[\w-]+)[= ]?(\S*)")
#: Variables that platforms set for each process or node: PyTorchJob, Slurm, AzureML, PAI.
_GIVEN: Final = re.compile(
    r"(?:SLURM|AZ|AZUREML|OMPI|PBS|LSB|PET|VC|MLP|KUBERNETES)_\w+"
    r"|HOME|USER|PATH|PWD|HOSTNAME|CUDA_VISIBLE_DEVICES|TMPDIR|SCRATCH|WORK"
)
_GIVEN_WITHOUT_SLURM: Final = re.compile(
    r"MASTER_ADDR|MASTER_PORT|WORLD_SIZE|(?:NODE_|LOCAL_)?RANK|NNODES|NUM_NODES"
)
_SPELLINGS: Final = {  # other words for keys of DeepSpeed's, as they are said
    "zero_optimization": ("zero_optimisation", "zero", "zero_config"),
    "optimizer": ("optimiser", "optim"),
    "scheduler": ("lr_scheduler",),
    "enabled": ("enable",),
    "device": ("devices", "offload_device"),
    "stage": ("zero_stage", "level"),
    "offload_optimizer": ("optimizer_offload", "offload_optim"),
    "offload_param": ("offload_params", "param_offload", "offload_parameters"),
    "overlap_comm": ("overlap_communication", "overlap"),
    "gradient_clipping": ("grad_clip", "clip_grad", "gradient_clip"),
    "gradient_accumulation_steps": ("accumulation_steps", "gradient_accumulation"),
    "train_micro_batch_size_per_gpu": (
        "micro_batch_size",
        "train_micro_batch_size",
        "micro_batch_size_per_gpu",
    ),
    "warmup_num_steps": ("warmup_steps", "num_warmup_steps"),
    "total_num_steps": ("total_steps", "num_training_steps"),
    "params": ("parameters", "args"),
    "type": ("name",),
}
_REQUIRED_BY_MEGATRON: Final = (  # validate_args of Megatron-LM: required_args, and the micro batch
    "num-layers",
    "hidden-size",
    "num-attention-heads",
    "max-position-embeddings",
    "micro-batch-size",
)
# a key of DeepSpeed's and the Trainer's option that fills it in, which it compares
_OF_THE_TRAINER: Final = {
    "train_micro_batch_size_per_gpu": "per_device_train_batch_size",
    "gradient_accumulation_steps": "gradient_accumulation_steps",
    "gradient_clipping": "max_grad_norm",
    "lr": "learning_rate",
    "weight_decay": "weight_decay",
}

#: The launchers' options of one meaning, in torchrun's, DeepSpeed's and accelerate's words.
_SAME: Final = (
    ("nproc[-_]per[-_]node", "num_gpus", "num_processes"),
    ("nnodes", "num_nodes", "num_machines"),
    ("node[-_]rank", "machine_rank"),
    ("master[-_]addr", "main_process_ip"),
    ("master[-_]port", "main_process_port"),
)
_ELSEWHERE: Final = {  # a key of DeepSpeed's, and the same in the Trainer's or PyTorch's words
    "train_micro_batch_size_per_gpu": "per_device_train_batch_size",
    "gradient_accumulation_steps": "accumulate_grad_batches",
    "gradient_clipping": "max_grad_norm",
    "lr": "learning_rate",
    "weight_decay": "wd",
}
RANKS: Final = r"(?:--nproc[-_]per[-_]node|--num_gpus)[= ]"


def at(
    pattern: str,
    how: Callable[[re.Match[str], random.Random], str],
    within: Callable[..., set[int]] | None = None,
) -> Changes:
    """A way to change lines: one match of a pattern becomes something else, on the lines that
    `within` gives.
    """

    def changes(lines: list[str], rng: random.Random) -> Iterator[Change]:
        numbers = range(len(lines)) if within is None else sorted(within(lines))
        found = [
            (number, match)
            for number in numbers
            for match in re.finditer(pattern, lines[number])
            if not re.match(r"\s*(?:#(?!SBATCH)|//)", lines[number])
        ]
        rng.shuffle(found)
        for number, match in found:
            line, new = lines[number], how(match, rng)
            if new != match[0]:
                yield number, line[: match.start()] + new + line[match.end() :], match[0]

    return changes


def launched(lines: list[str], *, first: bool = True) -> set[int]:
    """The lines of commands that launch training; the one that starts each too, or only those that
    go on with it.
    """
    inside, within = set[int](), False
    for number, line in enumerate(lines):
        start = bool(LAUNCH_LINE.search(line)) and not line.lstrip().startswith(("#", "echo"))
        if (within and not start) or (start and first):
            inside.add(number)
        within = (within or start) and line.rstrip().endswith("\\")
    return inside


def _after_the_first(lines: list[str]) -> set[int]:
    """The lines that go on with a command and are gone on with."""
    return {
        number for number in launched(lines, first=False) if lines[number].rstrip().endswith("\\")
    }


def slip(word: str, rng: random.Random) -> str:
    """A name with two letters exchanged, or one left out or written twice."""
    place = rng.randrange(1, max(len(word) - 1, 2))
    swapped = word[:place] + word[place : place + 2][::-1] + word[place + 2 :]
    others = (swapped, word[:place] + word[place + 1 :], word[:place] + word[place] + word[place:])
    return rng.choice([one for one in others if one != word])


def _of_another_launcher(name: str, rng: random.Random) -> str:
    same = next(same for same in _SAME if any(re.fullmatch(one, name) for one in same))
    return rng.choice([one.replace("[-_]", "_") for one in same if not re.fullmatch(one, name)])


def _other_number(match: re.Match[str], rng: random.Random) -> str:
    return match[1] + str(int(match[2]) * 2 if rng.random() < 0.5 else int(match[2]) + 1)


def _last_commas(lines: list[str], rng: random.Random) -> Iterator[Change]:
    ends = [
        n for n in range(len(lines) - 1) if lines[n].strip() and re.match(r"\s*[}\]]", lines[n + 1])
    ]
    ends = [n for n in ends if not lines[n].rstrip().endswith((",", "{", "["))]
    rng.shuffle(ends)
    yield from ((n, lines[n].rstrip() + ",", "") for n in ends)


def _both_precisions(lines: list[str], rng: random.Random) -> Iterator[Change]:
    names = [name for name in ("fp16", "bf16") if any(f'"{name}"' in line for line in lines)]
    if len(names) == 1:  # a section more
        for number, line in enumerate(lines):
            if f'"{names[0]}"' in line:
                yield (
                    number,
                    '  "' + ("bf16", "fp16")[names[0] == "bf16"] + '": {"enabled": true},\n' + line,
                    line,
                )
    on = re.search(r'"[fb]f?16"\s*:\s*\{[^{}]*"enabled"\s*:\s*true', "".join(lines))
    for number, line in enumerate(lines) if len(names) == 2 and on else ():
        above = "".join(lines[max(0, number - 2) : number + 1])
        if re.search(r'"(?:fp16|bf16)"', above) and '"enabled": false' in line:
            yield number, line.replace("false", "true"), line


def _deleted(pattern: str, within: Callable[..., set[int]] | None = None) -> Changes:
    """A whole line with a match goes; within a command the backslash at its end stays."""
    changes = at(pattern, lambda match, rng: "", within)

    def some(lines: list[str], rng: random.Random) -> Iterator[Change]:
        left = "" if within is None else "    \\"
        yield from ((number, left, lines[number]) for number, _, _ in changes(lines, rng))

    return some


def _first_command(lines: list[str], rng: random.Random) -> Iterator[Change]:
    number = next((n for n, line in enumerate(lines) if line.startswith("#SBATCH")), None)
    if number is not None:
        yield (
            number,
            rng.choice(["set -e", "module load cuda", "export NCCL_DEBUG=INFO"])
            + "\n"
            + lines[number],
            "",
        )


def _beside_a_file(lines: list[str], rng: random.Random) -> Iterator[Change]:
    for number, line in enumerate(lines):
        if match := re.match(r"(\s+)deepspeed_config_file:", line):
            key = rng.choice(
                ["zero_stage: 2", "gradient_accumulation_steps: 4", "offload_optimizer_device: cpu"]
            )
            yield number, f"{line}\n{match[1]}{key}", line


# Conditions


def always(repo: Path, path: Path, lines: list[str], change: Change) -> bool:
    """Whoever reads the line refuses it."""
    return True


def value_of(text: str, option: str) -> str | None:
    """The value of an option in a script, where it is written once or a variable that is set
    once.
    """
    found = set(re.findall(rf"--{option}[= ]+[\"']?([^\s\"'\\]+)", text))
    if len(found) != 1:
        return None
    value = found.pop()
    if name := re.fullmatch(r"\$\{?(\w+)\}?", value):
        values = re.findall(rf"^\s*(?:export\s+)?{name[1]}=[\"']?([^\s\"'#]*)", text, re.MULTILINE)
        return values[0] if len(values) == 1 else None
    return value


def _numbers(text: str, *options: str) -> list[int | None]:
    return [
        int(value) if (value := value_of(text, one)) and value.isdigit() else None
        for one in options
    ]


def _changed(lines: list[str], change: Change) -> str:
    return "\n".join([*lines[: change[0]], change[1], *lines[change[0] + 1 :]])


def unequal_parts(repo: Path, path: Path, lines: list[str], change: Change) -> bool:
    """Megatron divides heads by tensor ranks, the hidden size by heads and layers by stages; and
    can't any more.
    """

    def legal(text: str) -> bool | None:
        tensor, stages, heads, hidden, layers = _numbers(
            text,
            *("tensor-model-parallel-size", "pipeline-model-parallel-size", "num-attention-heads"),
            *("hidden-size", "num-layers"),
        )
        if "decoder-first-pipeline" in text or "num-layers-in" in text or "account-for" in text:
            return None
        # of a head, which then isn't their share of the hidden size
        own_width = re.search(r"--kv-channels\b", text)
        pairs = [(heads, tensor), (hidden, None if own_width else heads), (layers, stages)]
        return all(whole % part == 0 for whole, part in pairs if whole and part)

    return bool(legal("\n".join(lines))) and legal(_changed(lines, change)) is False


def directive(repo: Path, path: Path, lines: list[str], change: Change) -> bool:
    """Slurm reads the line: it stands before the first command."""
    first = next(
        (n for n, line in enumerate(lines) if line.strip() and not line.startswith("#")), len(lines)
    )
    return lines[change[0]].startswith("#SBATCH") and change[0] < first


def _asked(text: str) -> dict[str, str]:
    return {match[1]: match[2] for line in text.split("\n") if (match := _SBATCH.match(line))}


def _gpus(text: str) -> int | None:
    """GPUs of a node that a batch script asks for."""
    asked = _asked(text)
    found = re.search(r"(\d+)$", asked.get("--gpus-per-node") or asked.get("--gres") or "")
    return int(found[1]) if found else None


def tasks_in_each_others_way(repo: Path, path: Path, lines: list[str], change: Change) -> bool:
    """More tasks of a node than GPUs, or as many launchers of the same ranks on it."""
    after = _changed(lines, change)
    tasks = re.search(r"(\d+)", _asked(after).get("--ntasks-per-node", ""))
    if not directive(repo, path, lines, change) or not tasks:
        return False
    if re.search(
        r"^[^#\n]*\bsrun\b.*\b(?:torchrun|accelerate launch|torch\.distributed)",
        after,
        re.MULTILINE,
    ):
        before = re.search(r"(\d+)", _asked("\n".join(lines)).get("--ntasks-per-node", ""))
        return bool(before and before[1] == "1")
    by_srun = re.search(r"^[^#\n]*\bsrun\b[^\n]*\bpython", after, re.MULTILINE)
    return bool(by_srun and (gpus := _gpus(after)) and int(tasks[1]) > gpus)


def used_and_not_given(repo: Path, path: Path, lines: list[str], change: Change) -> bool:
    """A launch names a variable that nothing else in the file sets, no platform gives and no word
    replaces.
    """
    found = re.match(r"\s*(?:export\s+)?(\w+)\s*=", lines[change[0]])
    by_slurm = any(line.startswith("#SBATCH") for line in lines)
    if (
        not found
        or _GIVEN.fullmatch(found[1])
        or (not by_slurm and _GIVEN_WITHOUT_SLURM.fullmatch(found[1]))
    ):
        return False
    rest = "\n".join([*lines[: change[0]], *lines[change[0] + 1 :]])
    if re.search(
        rf"\b{found[1]}\s*=|\bread\b.*\b{found[1]}\b|\bfor {found[1]} in\b|\b(?:source|\.) ", rest
    ):
        return False
    later = [lines[number] for number in launched(lines) if number > change[0]]
    return any(re.search(rf"\$(?:{found[1]}\b|\{{{found[1]}\}})", line) for line in later)


def starts_fewer_or_apart(repo: Path, path: Path, lines: list[str], change: Change) -> bool:
    """Without the option, ranks or nodes are missing that the rest of the file counts on."""
    before, gone = "\n".join(lines), change[2]
    nodes = re.search(r"(\d+)", _asked(before).get("--nodes", _asked(before).get("-N", "")))
    several = bool(nodes and int(nodes[1]) > 1) or bool(
        re.search(r"--(?:nnodes|num_machines)[= ]+[2-9]", before)
    )
    if re.search(r"--(?:nproc[-_]per[-_]node|num_processes)\b", gone):
        return bool((gpus := _gpus(before)) and gpus > 1)
    if re.search(
        r"--(?:node[-_]rank|machine_rank|master[-_]addr|main_process_ip|rdzv[-_]endpoint)\b", gone
    ):
        apart = "rank" in gone and "rdzv" in before  # where nodes number themselves
        return several and not apart and "--nnodes" not in gone
    return several


def fewer_devices(repo: Path, path: Path, lines: list[str], change: Change) -> bool:
    """The line's launch starts more ranks than it leaves devices."""
    devices = re.search(r"CUDA_VISIBLE_DEVICES=[\"']?([\d,]+)", change[1])
    rest = "\n".join(lines[change[0] : change[0] + 12])
    ranks = re.search(r"--(?:nproc[-_]per[-_]node|num_processes)[= ]+(\d+)", rest)
    return bool(devices and ranks and int(ranks[1]) > len(devices[1].split(",")))


def file_not_there(repo: Path, path: Path, lines: list[str], change: Change) -> bool:
    """A path of the line leads to a file of the repository from the script's folder or one above
    it; and none after.
    """
    bases = [path.parent, *(one for one in path.parents if one == repo or repo in one.parents)]

    def there(line: str) -> set[str]:
        words = re.findall(r"(?<![\w$}/.-])[\w.-][\w./-]*\.(?:json|ya?ml|py)\b", line)
        return {word for word in words if any((base / word).is_file() for base in bases)}

    return len(there(change[1])) < len(there(lines[change[0]]))


def other_data(repo: Path, path: Path, lines: list[str], change: Change) -> bool:
    """YAML reads something else, or nothing."""

    def data(text: str) -> Any:
        try:
            return yaml.safe_load(text)
        except yaml.YAMLError:
            return None

    return data(_changed(lines, change)) != data("\n".join(lines))


def no_such_machine(repo: Path, path: Path, lines: list[str], change: Change) -> bool:
    """A machine's rank is counted from 0 and below their number."""
    rank, machines = (
        re.search(rf"^{key}:\s*(\d+)", _changed(lines, change), re.MULTILINE)
        for key in ("machine_rank", "num_machines")
    )
    missing = bool(rank and machines and int(rank[1]) >= int(machines[1]))
    return missing and not given_by_a_launch(repo, path, change[1])


def given_by_a_launch(repo: Path, path: Path, line: str) -> bool:
    """Return whether an option of a launch replaces a line of accelerate's config."""
    option = f"--{line.partition(':')[0].strip()}"
    scripts = (
        one
        for one in repo.rglob("*")
        if one.suffix in (".sh", ".slurm", ".sbatch") and one.is_file()
    )
    texts = (one.read_text(encoding="utf-8", errors="replace") for one in scripts)
    return any(path.name in text and option in text for text in texts)


def of_several_machines(repo: Path, path: Path, lines: list[str], change: Change) -> bool:
    """accelerate divides the processes by the machines where there are more than one; else it makes
    a text of them.

    Source: accelerate/utils/launch.py @ 1.15 (prepare_multi_gpu_env).
    """
    several = re.search(r"^num_machines:\s*[2-9]", "\n".join(lines), re.MULTILINE)
    return bool(several) and not given_by_a_launch(repo, path, change[1])


def by_deepspeed_itself(repo: Path, path: Path, lines: list[str], change: Change) -> bool:
    """The config leaves nothing to the Trainer, and no program of the repository has one, or
    accelerate.
    """
    if '"auto"' in "\n".join(lines):
        return False
    texts = [
        one.read_text(encoding="utf-8", errors="replace")
        for one in repo.rglob("*.py")
        if one.is_file()
    ]
    own = any("deepspeed.initialize" in text for text in texts)
    return own and not any(
        re.search(r"\bTrain(?:er|ingArguments)\b|\baccelerate\b|lightning", text) for text in texts
    )


def code_of(file: Path) -> str:
    """The text of a file without lines that are comments."""
    text = file.read_text(encoding="utf-8", errors="replace")
    return re.sub(r"^[ \t]*#(?!SBATCH)[^\n]*", "", text, flags=re.MULTILINE)


def _scripts_that_name(repo: Path, config: Path) -> Iterator[str]:
    for one in repo.rglob("*"):
        if one.suffix in (".sh", ".slurm", ".sbatch") and one.is_file():
            text = code_of(one)
            named = re.findall(
                rf"--deepspeed[= ]+[\"']?((?:[\w.-]+/)*{re.escape(config.name)})\b", text
            )
            if any(
                config in ((base / path).resolve() for base in (one.parent, repo)) for path in named
            ):
                yield text


def unlike_the_script(repo: Path, path: Path, lines: list[str], change: Change) -> bool:
    """The Trainer compares the number with its own argument, which a script that names the config
    alone gives it.
    """
    found = re.search(r'"(\w+)"\s*:\s*([\d.e-]+)', change[1])
    if not found or len([one for one in repo.rglob(path.name) if one.is_file()]) > 1:
        return False
    given = [value_of(text, _OF_THE_TRAINER[found[1]]) for text in _scripts_that_name(repo, path)]
    return any(
        value and re.fullmatch(r"[\d.e-]+", value) and float(value) != float(found[2])
        for value in given
    )


def unlike_the_config(repo: Path, path: Path, lines: list[str], change: Change) -> bool:
    """The Trainer compares its argument with the number in the one config that the script names."""
    option = re.search(r"--(\w+)[= ]+([\d.e-]+)", change[1])
    code = "\n".join(line for line in lines if not line.lstrip().startswith("#"))
    names = set(re.findall(r"--deepspeed[= ]+[\"']?(?:[\w.-]+/)*([\w.-]+\.json)", code))
    files = [one for name in names for one in repo.rglob(name) if one.is_file()]
    if not option or len(files) != 1:
        return False
    keys = [key for key, name in _OF_THE_TRAINER.items() if f"--{name}" in change[2]]
    text = files[0].read_text(encoding="utf-8", errors="replace")
    values = [value for key in keys for value in re.findall(rf'"{key}"\s*:\s*([\d.e-]+)', text)]
    new = re.search(rf"--{_OF_THE_TRAINER[keys[0]]}[= ]+([\d.e-]+)", change[1]) if keys else None
    return bool(new) and any(float(value) != float(new[1]) for value in values)  # type: ignore[index]


def two_precisions(repo: Path, path: Path, lines: list[str], change: Change) -> bool:
    """Of Megatron, or of a program of the repository that has the Trainer's arguments: neither
    takes both.
    """
    text = "\n".join(lines)
    if re.search(r"--(?:fp16|bf16)\b(?:.|\n)*--(?:fp16|bf16)\b", text):
        return False
    if "--tensor-model-parallel-size" in text:
        return True
    names = {Path(word).name for word in re.findall(r"[\w./-]+\.py\b", text)}
    programs = [
        one.read_text(encoding="utf-8", errors="replace")
        for name in names
        for one in repo.rglob(name)
    ]
    return any("TrainingArguments" in program for program in programs)


def of_megatron(repo: Path, path: Path, lines: list[str], change: Change) -> bool:
    """The program is Megatron's, whose argparse knows each option in one spelling."""
    return "--tensor-model-parallel-size" in "\n".join(lines) and "pretrain" in "\n".join(lines)


def _nodes(text: str) -> int:
    """Nodes that a batch script asks for, or that its launch is for; 1 where neither says so."""
    asked = _asked(text)
    found = re.match(r"(\d+)$", asked.get("--nodes") or asked.get("-N") or "")
    stated = found or re.search(r"--(?:nnodes|num_machines|num_nodes)[= ]+[\"']?(\d+)\b(?!:)", text)
    return int(stated[1]) if stated else 1


def with_called(repo: Path, path: Path, text: str) -> str:
    """A script, and those of its repository that it calls by a path that leads there."""
    called = [
        base / name
        for name in re.findall(r"(?<![\w$}/])[\w.][\w./-]*\.sh\b", text)
        for base in (path.parent, repo)
    ]
    files = dict.fromkeys(one for one in called if one.is_file() and one != path)
    return "\n".join([text, *(one.read_text(encoding="utf-8", errors="replace") for one in files)])


def of_several_nodes(repo: Path, path: Path, lines: list[str], change: Change) -> bool:
    """The launch is for several nodes, which number themselves by nothing else."""
    text = "\n".join(lines)
    by_torch = re.search(r"rdzv[-_](?:backend|endpoint|id)", text)
    return not by_torch and _nodes(text) > 1 and bool(launched(lines))


def name_that_nothing_sets(repo: Path, path: Path, lines: list[str], change: Change) -> bool:
    """Neither the file nor a scheduler gives the new name, and a command needs its value."""
    if re.match(r"\s*(?:echo|printf|if|elif|while|\[)\b", lines[change[0]]):
        return False
    new = set(re.findall(r"\w+", change[1])) - set(re.findall(r"\w+", lines[change[0]]))
    return bool(new) and not any(re.search(rf"\b{one}=", "\n".join(lines)) for one in new)


def as_many_as_gpus(repo: Path, path: Path, lines: list[str], change: Change) -> bool:
    """The number that changes is that of the GPUs of a node, which the batch script asks for."""
    was = re.findall(r"\d+", change[2])
    return str(_gpus("\n".join(lines))) in was


def _ranks(text: str) -> set[str]:
    """Ranks of a node that a launch starts, where it says so."""
    return {value for one in _RANK_OPTIONS if (value := value_of(text, one)) and value.isdigit()}


def fewer_than_ranks(repo: Path, path: Path, lines: list[str], change: Change) -> bool:
    """A launch in the script starts as many ranks as the script asked for GPUs before."""
    before = _gpus("\n".join(lines))
    own = _ranks("\n".join(lines)) == {str(before)}
    return own and directive(repo, path, lines, change) and bool(launched(lines))


def fewer_than_ranks_of_another(repo: Path, path: Path, lines: list[str], change: Change) -> bool:
    """The same of a launch in a script that it calls."""
    before = _gpus("\n".join(lines))
    inside = with_called(repo, path, "\n".join(lines)).split("\n")[len(lines) :]
    theirs = _ranks("\n".join(inside)) == {str(before)} and bool(launched(inside))
    return theirs and not launched(lines) and directive(repo, path, lines, change)


def other_than_the_launch(repo: Path, path: Path, lines: list[str], change: Change) -> bool:
    """A launch in the script names as many nodes as the script asked for before."""
    text = "\n".join(lines)
    named = {value_of(text, one) for one in ("nnodes", "num_machines", "num_nodes")}
    return str(_nodes(text)) in named and directive(repo, path, lines, change)


def needed_inside(repo: Path, path: Path, lines: list[str], change: Change) -> bool:
    """Another line names a path below the place where something was mounted."""
    inside = re.search(r":(/[\w./-]+)", change[2])
    rest = "\n".join([*lines[: change[0]], *lines[change[0] + 1 :]])
    mounted = re.search(rf":{re.escape(inside[1])}\b", rest) if inside else None
    return (
        bool(inside) and not mounted and bool(re.search(rf"[ =\"']{re.escape(inside[1])}/\w", rest))
    )  # type: ignore[index]


def script_not_there(repo: Path, path: Path, lines: list[str], change: Change) -> bool:
    """A path of the line leads to a script from the file's folder, or from the repository's; and
    none after.
    """

    def there(line: str) -> set[str]:
        words = re.findall(r"(?<![\w$}/.-])[\w.-][\w./-]*\.sh\b", line)
        return {
            word for word in words if any((one / word).is_file() for one in (path.parent, repo))
        }

    return len(there(change[1])) < len(there(lines[change[0]]))


_RANK_OPTIONS: Final = ("nproc_per_node", "nproc-per-node", "num_gpus")
_LAUNCHERS: Final = (
    r"nproc[-_]per[-_]node|nnodes|node[-_]rank|master[-_]port|master[-_]addr|num_gpus|num_nodes"
    r"|num_processes|num_machines|config_file|machine_rank"
)
_TRAINER: Final = "|".join(_OF_THE_TRAINER.values())

#: Each kind of slip: how it is made, and when it breaks a run; None where what DeepSpeed or bash
#: reads says so.
CONFIG: Final[Mapping[str, tuple[Changes, Condition | None]]] = {
    "key with a slip": (at(r'"(\w{5,})"(?=\s*:)', lambda m, r: f'"{slip(m[1], r)}"'), None),
    "comma dropped": (at(r",(?=\s*$)", lambda m, r: ""), None),
    "bracket dropped": (at(r"[}\]](?=,?\s*$)", lambda m, r: ""), None),
    "quote dropped": (at(r'"(?=\s*:)', lambda m, r: ""), None),
    "wrong type": (
        at(  # "yes" is true to DeepSpeed's models
            r"(?<=:)\s*(?:true|false|\d+)(?=\s*,?\s*$)",
            lambda m, r: r.choice([" [1]", " {}", *([' "yes"'] if m[0].strip().isdigit() else [])]),
        ),
        None,
    ),
    "wrong choice": (
        at(
            r'(?<="stage":)\s*[0-3]|(?<="device":)\s*"\w+"|(?<="type":)\s*"\w+"',
            lambda m, r: (
                " 4" if m[0].strip().isdigit() else f' "{slip(m[0].strip().strip(chr(34)), r)}"'
            ),
        ),
        None,
    ),
    "other batch": (at(r'("train_(?:micro_)?batch_size\w*"\s*:\s*)(\d+)', _other_number), None),
    "key of another program": (
        at(
            r'"(?:train_micro_batch_size_per_gpu|gradient_accumulation_steps|gradient_clipping|lr'
            r'|weight_decay)"(?=\s*:)',
            lambda m, r: f'"{_ELSEWHERE[m[0][1:-1]]}"',
        ),
        None,
    ),
    # of stages the Trainer looks for 3 alone, and DeepSpeed makes numbers of texts
    "number in quotes": (
        at(r"(?<=: )(?<!\"stage\": (?=[0-2]))\d[\d.e+-]*(?=\s*,?\s*$)", lambda m, r: f'"{m[0]}"'),
        None,
    ),
    "comma after the last": (_last_commas, None),
    "comment in JSON": (
        at(r"(?<=[\d,])\s*$", lambda m, r: r.choice(["  // changed", "  # changed"])),
        None,
    ),
    "Python's word": (
        at(r"(?<=: )(?:true|false|null)\b", lambda m, r: {"null": "None"}.get(m[0], m[0].title())),
        None,
    ),
    "both precisions": (_both_precisions, None),
    "key in other words": (
        at(rf'"({"|".join(_SPELLINGS)})"(?=\s*:)', lambda m, r: f'"{r.choice(_SPELLINGS[m[1]])}"'),
        None,
    ),
    "auto without the Trainer": (
        at(
            r'("(?:train_\w*batch_size\w*|gradient_accumulation_steps|lr|gradient_clipping)"\s*:\s*)'
            r"[\d.e-]+",
            lambda m, r: f'{m[1]}"auto"',
        ),
        by_deepspeed_itself,
    ),
    "number beside the Trainer's": (
        at(
            rf'"({"|".join(_OF_THE_TRAINER)})"\s*:\s*"auto"',
            lambda m, r: f'"{m[1]}": ' + ("3" if "batch" in m[1] or "steps" in m[1] else "0.0003"),
        ),
        unlike_the_script,
    ),
}
SCRIPT: Final[Mapping[str, tuple[Changes, Condition | None]]] = {
    "launcher option with a slip": (
        at(
            r"--(nproc[-_]per[-_]node|nnodes|master[-_]port|num_gpus|num_processes|config_file"
            r"|num_machines|machine_rank|include|hostfile)\b",
            lambda m, r: f"--{slip(m[1], r)}",
            launched,
        ),
        None,
    ),
    "program's option with a slip": (
        at(r"(?<=\s)--([a-z]{3,}[_-][a-z_-]{3,})\b", lambda m, r: f"--{slip(m[1], r)}", launched),
        None,
    ),
    "path with a slip": (
        at(
            r"(?<=[\s=/])([\w-]{4,})(?=\.(?:json|yaml|yml|py)\b)",
            lambda m, r: slip(m[1], r),
            launched,
        ),
        None,
    ),
    "backslash dropped": (at(r"\s*\\$", lambda m, r: "", launched), None),
    "blank after backslash": (at(r"\\$", lambda m, r: "\\ ", launched), None),
    "sbatch option with a slip": (
        at(r"(?<=#SBATCH --)([a-z-]{4,})(?==)", lambda m, r: slip(m[1], r)),
        None,
    ),
    "other number of GPUs": (at(rf"({RANKS})(\d+)\b", _other_number), None),
    "other stage of the launch": (at(r"(--nnodes[= ])(\d+)\b", _other_number, launched), None),
    "option of another launcher": (
        at(
            rf"--({'|'.join(map('|'.join, _SAME))})\b",
            lambda m, r: f"--{_of_another_launcher(m[1], r)}",
            launched,
        ),
        None,
    ),
    "argument beside the config's": (
        at(
            rf"--({_TRAINER})([= ]+)\d[\d.e-]*",
            lambda m, r: f"--{m[1]}{m[2]}" + r.choice(["3", "7"]),
            launched,
        ),
        unlike_the_config,
    ),
    "tasks a node": (
        at(
            r"(#SBATCH\s+--ntasks-per-node[= ])(\d+)",
            lambda m, r: m[1] + str(r.choice([int(m[2]) * 8, 16])),
        ),
        tasks_in_each_others_way,
    ),
    "assignment gone": (_deleted(r"^\s*(?:export\s+)?\w+=\S"), used_and_not_given),
    "blanks around =": (
        at(r"^(\s*(?:export\s+)?\w+)=(?=[\w\"'$/.])", lambda m, r: f"{m[1]} = "),
        used_and_not_given,
    ),
    "option of the launch gone": (
        _deleted(
            r"^\s*--(?:nproc[-_]per[-_]node|nnodes|node[-_]rank|master[-_]addr|num_machines"
            r"|machine_rank|main_process_ip)\b",
            _after_the_first,
        ),
        starts_fewer_or_apart,
    ),
    "line commented out": (at(r"^\s*(?=--)", lambda m, r: f"{m[0]}# ", _after_the_first), None),
    "long dash": (at(r"(?<=\s)--(?=[a-z])", lambda m, r: r.choice(["–", "—"]), launched), None),
    "one dash": (at(rf"(?<=\s)--(?={_LAUNCHERS})", lambda m, r: "-", launched), None),
    "value gone": (at(rf"--({_LAUNCHERS})[= ]+[^\s\\]+", lambda m, r: f"--{m[1]}", launched), None),
    "quote gone": (at(r"[\"']", lambda m, r: "", launched), None),
    "dashes for underscores": (
        at(
            r"(?<=--)(num_gpus|num_nodes|master_port|master_addr)\b",
            lambda m, r: m[0].replace("_", "-"),
            launched,
        ),
        lambda repo, path, lines, change: bool(re.search(r"\bdeepspeed\s", lines[change[0]])),
    ),
    "underscores for dashes": (
        at(r"(?<=\s--)[a-z]+-[a-z-]+(?=[ =])", lambda m, r: m[0].replace("-", "_")),
        lambda *one: not one[2][one[3][0]].startswith("#") and of_megatron(*one),
    ),
    "sbatch option with underscores": (
        at(r"(?<=#SBATCH --)[a-z]+-[a-z-]+(?=[= ])", lambda m, r: m[0].replace("-", "_")),
        directive,
    ),
    "directive as a comment": (
        at(
            r"^#SBATCH(?=\s+(?:--(?:nodes|gres|gpus\S*|ntasks\S*)|-N|-n)[= ])",
            lambda m, r: "# SBATCH",
        ),
        directive,
    ),
    "command before the directives": (_first_command, lambda *one: directive(*one)),
    "time in words": (
        at(
            r"(#SBATCH\s+(?:--time[= ]|-t\s*))\S+",
            lambda m, r: m[1] + r.choice(["24h", "2days", "12hours"]),
        ),
        directive,
    ),
    "dollar lost": (
        at(
            rf"(--(?:{_LAUNCHERS})[= ]+[\"']?)\\?\$(\w+|\{{\w+\}})",
            lambda m, r: m[1] + m[2],
        ),
        None,
    ),
    "scheduler's variable with a slip": (
        at(
            r"(?<=\$)(\{?)((?:SLURM|MASTER|WORLD|NODE|LOCAL)_\w{3,})(?=\}|\b)(?!:-)",
            lambda m, r: m[1] + slip(m[2], r),
        ),
        name_that_nothing_sets,
    ),
    "every node the first": (
        at(
            r"(--(?:node[-_]rank|machine_rank)[= ]+)[\"']?\\?\$[\w{}]+[\"']?",
            lambda m, r: m[1] + "0",
        ),
        of_several_nodes,
    ),
    "this host for all": (
        at(
            r"(--(?:master[-_]addr|main_process_ip)[= ]+|^\s*(?:export\s+)?MASTER_ADDR=)"
            r"(?!localhost|127)(?:\$\([^)]*\)|\S+)",
            lambda m, r: m[1] + r.choice(["localhost", "127.0.0.1"]),
        ),
        of_several_nodes,
    ),
    "number of an option gone": (
        at(
            r"(--[a-z]\w{3,})[= ]+\d[\d.e-]*(?=\s*\\$)",
            lambda m, r: m[1],
            _after_the_first,
        ),
        lambda repo, path, lines, change: lines[change[0] + 1].lstrip().startswith("--"),
    ),
    "end of a block gone": (_deleted(r"^\s*(?:done|fi|esac|\})\s*$"), None),
    "other number in arithmetic": (
        at(
            r"(\(\([^()]*\*\s*)(\d+)(?=\s*\)\))|(\(\(\s*)(\d+)(?=\s*\*)",
            lambda m, r: (m[1] or m[3]) + str(2 * int(m[2] or m[4])),
        ),
        as_many_as_gpus,
    ),
    "other number in a variable": (
        at(
            r"(^\s*(?:export\s+)?\w*(?:GPU|PROC)\w*=[\"']?)(\d+)\b",
            lambda m, r: m[1] + str(2 * int(m[2])),
        ),
        as_many_as_gpus,
    ),
    "fewer GPUs asked for": (
        at(
            r"(#SBATCH\s+(?:--gres[= ]gpu:(?:\w+:)?|--gpus-per-node[= ](?:\w+:)?))([2-9]\d*)",
            lambda m, r: m[1] + str(int(m[2]) // 2),
        ),
        fewer_than_ranks,
    ),
    "fewer GPUs than a called script starts": (
        at(
            r"(#SBATCH\s+(?:--gres[= ]gpu:(?:\w+:)?|--gpus-per-node[= ](?:\w+:)?))([2-9]\d*)",
            lambda m, r: m[1] + str(int(m[2]) // 2),
        ),
        fewer_than_ranks_of_another,
    ),
    "other number of nodes": (
        at(
            r"(#SBATCH\s+(?:--nodes[= ]|-N\s*))(\d+)\b",
            lambda m, r: m[1] + str(int(m[2]) + 1),
        ),
        other_than_the_launch,
    ),
    "mount gone": (
        at(
            r"(?<=\s)(?:-v|--volume|-B|--bind|--container-mounts)[= ]+[^\s,:]+:/[^\s,:]+(?=\s|$)",
            lambda m, r: "",
        ),
        needed_inside,
    ),
    "called script with a slip": (
        at(
            r"(?<=[\s/])([\w-]{3,})(?=\.sh\b)",
            lambda m, r: slip(m[1], r),
        ),
        script_not_there,
    ),
    "fewer devices": (
        at(
            r"(CUDA_VISIBLE_DEVICES=[\"']?)([\d,]+)",
            lambda m, r: m[1] + m[2][: len(m[2]) // 2].rstrip(","),
        ),
        fewer_devices,
    ),
    "size that doesn't divide": (
        at(
            r"((?:--(?:tensor|pipeline)-model-parallel-size|--num-attention-heads|--num-layers)"
            r"[= ]+"
            r"|^\s*(?:export\s+)?"
            r"(?:TP|PP|TP_SIZE|PP_SIZE|NUM_LAYERS|NUM_HEADS|NHEADS|NLAYERS|HEADS|LAYERS)=)(\d+)",
            lambda m, r: m[1] + str(int(m[2]) + r.choice([1, 2])),
        ),
        unequal_parts,
    ),
    "Megatron's required option gone": (
        at(rf"--(?:{'|'.join(_REQUIRED_BY_MEGATRON)})[= ]+[^\s\\]+", lambda m, r: ""),
        lambda *one: of_megatron(*one) and "$@" not in "\n".join(one[2]),  # which may give it
    ),
    "both precisions": (
        at(
            r"--(fp16|bf16)\b(?: [Tt]rue)?",
            lambda m, r: f"{m[0]} {m[0].replace(m[1], 'bf16' if m[1] == 'fp16' else 'fp16')}",
        ),
        two_precisions,
    ),
    "folder with a slip": (
        at(
            r"(?<=[\s=/\"'])([A-Za-z][\w-]{3,})(?=/[\w./-]*\.(?:json|ya?ml|py)\b)",
            lambda m, r: slip(m[0], r),
            launched,
        ),
        file_not_there,
    ),
    "other ending": (
        at(
            r"(?<=[\w])\.(json|ya?ml)\b",
            lambda m, r: {"json": ".jsn", "yaml": ".yml", "yml": ".yaml"}[m[1]],
            launched,
        ),
        file_not_there,
    ),
}
ACCELERATE: Final[Mapping[str, tuple[Changes, Condition | None]]] = {
    "key with a slip": (
        at(r"^\s*(\w{6,})(?=:)", lambda m, r: m[0].replace(m[1], slip(m[1], r))),
        None,
    ),
    "wrong choice": (
        at(r"(?<=distributed_type: )(\w+)|(?<=mixed_precision: )(\w+)", lambda m, r: slip(m[0], r)),
        None,
    ),
    "wrong type": (
        at(r"(?<=num_processes: )\d+|(?<=num_machines: )\d+", lambda m, r: "many"),
        None,
    ),
    "path with a slip": (
        at(r"(?<=[\s=/])([\w-]{4,})(?=\.json\b)", lambda m, r: slip(m[1], r)),
        None,
    ),
    "tab": (at(r"^[ ]+(?=\w)", lambda m, r: "\t"), other_data),
    "blank after the colon gone": (at(r"(?<=\w): (?=\S)", lambda m, r: ":"), other_data),
    "a blank too many": (at(r"^[ ]+(?=\w)", lambda m, r: m[0] + " "), other_data),
    "key beside deepspeed_config_file": (_beside_a_file, always),
    "wrap class with a slip": (
        at(r"(?<=_cls_to_wrap: )(\w{6,})", lambda m, r: slip(m[1], r)),
        always,
    ),
    "machine that isn't there": (
        at(r"(?<=^machine_rank: )\d+", lambda m, r: str(int(m[0]) + 1)),
        no_such_machine,
    ),
    "number in quotes": (
        at(r"(?<=^num_processes: )\d+", lambda m, r: f"'{m[0]}'"),
        of_several_machines,
    ),
}
#: Kinds that may be meant, so that a warning is right.
WARNED: Final = (
    "directive as a comment",
    "command before the directives",
    "mount gone",  # the image may have it
)
#: Kinds that the environment of whoever starts the script may make good, so that a note is right.
NOTED: Final = ("assignment gone",)
#: Kinds that contradict another line, which may be named as well.
OF_TWO_PLACES: Final = (
    "both precisions",
    "auto without the Trainer",
    "number beside the Trainer's",
    "argument beside the config's",
    "tasks a node",
    "assignment gone",
    "blanks around =",
    "option of the launch gone",
    "size that doesn't divide",
    "fewer devices",
    "quote gone",
    "Megatron's required option gone",
    "command before the directives",
    "key beside deepspeed_config_file",
    "machine that isn't there",
    "line commented out",
    "end of a block gone",  # bash sees it where the file ends
    "fewer GPUs asked for",
    "fewer GPUs than a called script starts",
    "other number of nodes",
    "other number in arithmetic",
    "other number in a variable",
    "mount gone",
    "this host for all",
)
