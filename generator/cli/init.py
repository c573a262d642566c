"""`dsgen init`: a job spec from a few answers, or from files that launch a training already."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, Final

import click

from ..patterns import lazy_pattern
from .options import DEFAULT_SPEC, PURPOSES, STDOUT, Request, job_flags
from .printing import ExitStatus, echo

if TYPE_CHECKING:
    from ..draft import Draft, Keys, Outcome
    from ..findings import Finding
    from ..search.plan import Plan

#: The schema beside a spec, where there is one; else that of the installed package.
SCHEMA_NAME: Final = "dsgen.schema.json"
_MOST_NOTES: Final = 200  # lines at the head of a spec that say what it leaves out
#: The place of a key in a spec that isn't written yet.
_OF_DRAFT: Final = lazy_pattern(r" \(<mapping>[^()]*\)")


@click.command(short_help="Write a job spec from answers, or from an existing launch.")
@click.option(
    "--from", "sources", multiple=True, metavar="PATH", help="File or folder of an existing launch."
)
@click.argument("more", nargs=-1, metavar="[PATH]...")
@job_flags
@click.option(
    "-o",
    "--output",
    "spec",
    default=DEFAULT_SPEC,
    show_default=True,
    metavar="FILE",
    help="Spec to write; - prints it.",
)
@click.option(
    "--purpose", type=click.Choice(PURPOSES), help="Sets defaults of batch and framework."
)
@click.option("--force", is_flag=True, help="Overwrite the spec if it exists.")
def init(
    request: Request,
    sources: tuple[str, ...],
    more: tuple[str, ...],
    purpose: str | None,
    force: bool,
) -> None:
    """Write a job spec, dsgen.yaml.

    Asks for model, machines, GPUs, purpose, framework, target and length. Defaults come from files
    in this folder, sinfo and nvidia-smi. Without a terminal the defaults are used, and flags must
    give the rest.

    With --from, the spec is made from an existing launch: DeepSpeed configs, Slurm and shell
    scripts, Megatron arguments, Megatron-Bridge overrides, accelerate configs, AzureML, Kubernetes
    and SkyPilot jobs. Settings that a spec can't hold are listed.
    """
    from ..job.overrides import parse_value
    from ..text.around import checking  # here, to save start-up time
    from .questions import RATE, read_cluster, with_network
    from .writing import write_file

    if more and not sources:
        raise click.UsageError(f"put --from before {more[0]}: `dsgen init --from {more[0]}`")
    output = Path(request.spec or DEFAULT_SPEC)
    is_printed = str(output) == STDOUT
    if not is_printed and output.exists() and not force:
        echo(f"{output}: error: file exists", err=True)
        echo(
            "hint: use --force to overwrite it, or -o for another file; nothing was written",
            err=True,
        )
        raise click.exceptions.Exit(ExitStatus.WOULD_OVERWRITE)

    answers: dict[str, Any] = {}
    for path, value in request.overrides.items():
        is_name = path in ("model", "cluster")
        answers[path] = parse_value(value) if isinstance(value, str) and not is_name else value
    if purpose:
        answers["purpose"] = purpose
    if isinstance(answers.get("cluster"), str):
        answers["cluster"] = read_cluster(answers["cluster"])
        if RATE in answers:
            answers = with_network(answers, answers)

    paths = (*sources, *more)
    with checking(paths or (".",)):
        text, outcome = _spec_of_files(paths, answers, output) if paths else _asked(answers, output)
    _tell(outcome, err=is_printed)  # the spec alone goes to standard output then
    if write_file(text, str(output), force=force):
        _say_next(output, outcome.unwritten)
    errors = [*outcome.of_launch, *outcome.findings]
    if any(finding.severity.value == "error" for finding in errors):
        raise click.exceptions.Exit(ExitStatus.FINDINGS)
    if outcome.infeasible is not None:
        raise click.exceptions.Exit(ExitStatus.INFEASIBLE)


def _say_next(output: Path, unwritten: str) -> None:
    name = "" if output.name == DEFAULT_SPEC and output.parent == Path() else f" {output}"
    echo(f"written: {output}")
    files = "settings.txt, with the values for its launch" if unwritten else "its launch files"
    echo(f"Next:\n  dsgen plan{name}      # the best layouts")
    echo(f"  dsgen{name}           # {files}")
    if unwritten:
        echo(f"{unwritten}: set these values in it by hand.")


def _head(output: Path) -> list[str]:
    """The line by which editors that know YAML complete and check the keys."""
    from importlib.resources import files  # here, to save start-up time

    package = __package__.rpartition(".")[0]
    folder = output.parent.absolute()
    installed = Path(str(files(f"{package}.schemas").joinpath("job.schema.json")))
    schema = str(installed)
    if (folder / SCHEMA_NAME).is_file():
        schema = SCHEMA_NAME
    elif installed.is_relative_to(folder):
        # In a virtual environment of the project, whose own place differs from clone to clone.
        schema = f"./{installed.relative_to(folder).as_posix()}"
    return [f"yaml-language-server: $schema={schema}"]


def _spec_of_files(
    paths: Sequence[str], answers: Mapping[str, Any], output: Path
) -> tuple[str, Outcome]:
    """The spec of the launch that files hold, as text, and what became of its settings."""
    from ..draft import carry_over, spec_text, why_unwritten  # here, to save start-up time
    from ..draft.draft import ASSUMED

    draft = _draft(paths, answers)
    _fill_batch(draft, {}, "not in the files: sequences, or tokens, of an optimizer step")
    if isinstance(answers.get("cluster"), dict):
        _mark_guess(draft, answers)
    outcome = carry_over(draft)._replace(unwritten=why_unwritten(draft))
    if outcome.unwritten:  # no file is written, so none shows what is wrong in the launch
        outcome = outcome._replace(of_launch=_errors_in(paths, draft))
    model = draft.get("model")
    if isinstance(model, str):
        draft.set("model", _from_here(model, output))

    if outcome.unwritten:
        set_these = "set the values of settings.txt, which a plan has, in it by hand"
        draft.leave("launch", draft.found.where, f"{outcome.unwritten}: {set_these}")
    notes = [str(note) for note in draft.left]
    if len(notes) > _MOST_NOTES:
        notes[_MOST_NOTES:] = [f"and {len(notes) - _MOST_NOTES:,} more"]
    for note in notes:
        echo(f"not carried over: {note}", err=True)
    for key, why in draft.comments.items():
        if why.startswith(ASSUMED):
            echo(f"{ASSUMED}{key} {draft.get(key)}: {why.removeprefix(ASSUMED)}", err=True)

    if outcome.of_launch and draft.get("training.global_batch") is not None:
        draft.comments["training.global_batch"] = "of a launch with errors, which are named below"
    head = [
        *_head(output),
        f"From {', '.join(Path(path).name or path for path in paths)}, by dsgen init.",
    ]
    price = _price(outcome.plan)
    if price:
        head.append(f"{price}. Leave `layout` out for that.")
    tail = _tail(outcome, notes)
    text = spec_text(draft.spec, head=head, comments=draft.comments, tail=tail, from_files=True)
    return text, outcome


def _tail(outcome: Outcome, notes: Sequence[str]) -> list[str]:
    """The comments at the end of a spec made of files: what is wrong, left out and added."""
    from ..job.needs import listed_versions  # here, to save start-up time

    lists: dict[str, Sequence[str]] = {
        "Errors of the launch:": [
            f"{PurePath(finding.where.path).name}:{finding.where.line}: {_in_words(finding)}"
            for finding in outcome.of_launch
        ],
        "Not carried over:": notes,
        "Added by dsgen:": outcome.added,
    }
    if outcome.plan is not None and not outcome.unwritten:
        lists["Its files are written for:"] = [listed_versions(outcome.plan.job)]
    tail = []
    for title, lines in lists.items():
        if lines:
            tail += [title, *(f"  {line}" for line in lines)]
    return tail


def _errors_in(paths: Sequence[str], draft: Draft) -> tuple[Finding, ...]:
    """The errors that `dsgen validate` finds in the file of the launch that a draft is made of."""
    from ..check.validate import validate  # here, to save start-up time

    path = draft.found.where.path
    in_file = (finding for finding in validate(paths).findings if finding.where.path == path)
    return tuple(finding for finding in in_file if finding.severity.value == "error")


def _in_words(finding: Finding) -> str:
    """A finding's message, hint and rule in one line."""
    hint = f"; {finding.hint}" if finding.hint else ""
    return f"{finding.message}{hint} [{finding.rule}]"


def _draft(paths: Sequence[str], answers: Mapping[str, Any]) -> Draft:
    """What the files say of the job. What a plan needs besides is asked."""
    from ..draft import draft_run, find_runs  # here, to save start-up time
    from .proposals import Proposals
    from .questions import answered

    for path in paths:
        if not Path(path).exists():
            raise click.UsageError(f"no such file or folder: {path}")
    reading, runs = find_runs(paths)
    for finding in reading.findings[:_MOST_NOTES]:
        echo(
            f"{finding.where.path}: {finding.severity.value}: {finding.message} [{finding.rule}]",
            err=True,
        )
    if not runs:
        raise click.UsageError(f"no launch and no DeepSpeed config in {', '.join(paths)}")
    draft = draft_run(runs[0], runs[1:], answers)
    if draft.refused is not None:
        from .submit import refuse

        refuse(str(draft.refused), _way_on(draft))

    keys = ("model", "cluster", "framework", "launch.target", "gpus", "nodes")
    of_files = {key: draft.get(key) for key in keys if draft.get(key) is not None}
    has_machines = "gpus" in of_files or "nodes" in of_files
    if "model" in of_files and "cluster" in of_files and has_machines:
        return draft
    known = {"framework": "deepspeed", "launch.target": "slurm", **of_files}
    told = answered(known, Proposals(), _hints(draft))
    # A purpose is no key of a spec: it sets others.
    new = {key: value for key, value in told.items() if key not in known and key != "purpose"}
    return draft_run(runs[0], runs[1:], {**answers, **new})


def _way_on(draft: Draft) -> str:
    """What to do with a launch that no spec can describe."""
    import shlex  # here, to save start-up time

    from ..draft.scripts import FILE_MISSING

    if draft.refused is not None and draft.refused.why.endswith(FILE_MISSING):
        return "add the folder that has it: dsgen init --from LAUNCH FOLDER"
    answers = {f"--{key}": draft.get(key) for key in ("model", "cluster", "gpus")}
    answers["--target"] = draft.get("launch.target") or "slurm"
    for flag, placeholder in (("--model", "MODEL"), ("--cluster", "NODE_TYPE")):
        if answers[flag] is None:  # the command can't do without it
            answers[flag] = placeholder
    flags = (
        f"{flag} {shlex.quote(str(value))}"
        for flag, value in answers.items()
        if isinstance(value, str | int)
    )
    command = " ".join(("dsgen init", *flags, "--framework huggingface"))
    return (
        f"plan the training by itself: {command} --set training.sharding=fsdp2; "
        "dsgen validate checks this launch as it is"
    )


#: Keys of a spec whose text may name the accelerators of the nodes that it asks for.
_NAME_CARDS: Final = ("partition", "constraint")


def _hints(draft: Draft) -> dict[str, str]:
    """Hints by key for questions that the files leave open: `8 GPUs a node (sft.sbatch:7)`."""
    from ..catalog import find_accelerator  # here, to save start-up time
    from ..catalog.names import nodes_with
    from ..submission.world import world_of

    claim = next(iter(world_of(draft.found.submission).claims_on("GPUs per node")), None)
    if claim is None:
        return {}

    cards = [find_accelerator(str(draft.get(f"launch.slurm.{key}"))) for key in _NAME_CARDS]
    cards.append(find_accelerator("h100"))  # an example, where the options name none
    card = next(each for each in cards if each is not None)
    nodes = sorted(nodes_with(card, claim.value), key=lambda node: "dgx" not in node.name)
    such_as = " or ".join([f"{claim.value}x{card.name}", *(node.name for node in nodes[:1])])
    place = ":".join(str(part) for part in (Path(claim.where.path).name, claim.where.line) if part)
    return {"cluster": f"{claim.value} GPUs a node ({place}): such as {such_as}"}


def _price(plan: Plan | None) -> str:
    """What the layout of a launch costs in time; empty where dsgen's own is no faster."""
    from ..search.instead import unpinned, unpinned_text  # here, to save start-up time

    if plan is None:
        return ""
    free = unpinned(plan)
    return unpinned_text(plan, free) if free else ""


def _fill_batch(draft: Keys, told: Mapping[str, Any], why: str) -> None:
    """Set a usual batch where there is none, with a comment that says why."""
    from .example import usual_batch  # here, to save start-up time

    if draft.get("training.global_batch") is None:
        draft.set("training.global_batch", usual_batch(told.get("purpose", ""), told))
        draft.comments["training.global_batch"] = why


def _from_here(model: str, output: Path) -> str:
    """A model's path as the spec needs it: relative to the spec's folder."""
    import os  # here, to save start-up time

    from ..catalog import find_model

    path = Path(model)
    if find_model(model) is not None or path.is_absolute() or not path.exists():
        return model
    relative = os.path.relpath(path, output.parent)
    return relative if "/" in relative or relative.endswith(".json") else f"./{relative}"


def _asked(answers: Mapping[str, Any], output: Path) -> tuple[str, Outcome]:
    from ..draft import Keys, spec_text  # here, to save start-up time
    from ..draft.refused import planned
    from .proposals import proposals
    from .questions import answered

    proposed = proposals(Path())
    told = answered(answers, proposed)
    draft = Keys()
    for key, value in {**answers, **told}.items():
        if key != "purpose":
            draft.set(key, value)
    draft.set("model", _from_here(str(told["model"]), output))

    # What files say beside the questions is set too, but for options of targets that weren't chosen
    # (`launch.slurm.partition`).
    for key, value in proposed.values.items():
        is_asked = key in ("model", "cluster", "gpus", "nodes", "framework", "launch.target")
        section, *rest = key.split(".")
        is_of_target = section == "launch" and len(rest) == 2
        is_of_another = is_of_target and rest[0] != told["launch.target"]
        if not is_asked and not is_of_another and draft.get(key) is None:
            draft.set(key, value)
            draft.comments[key] = f"from {proposed.sources[key]}"
    _mark_guess(draft, answers, taken=proposed.values.get("cluster") == told["cluster"])
    _fill_batch(draft, told, "sequences, or tokens, of an optimizer step: a usual size")
    text = spec_text(draft.spec, head=_head(output), comments=draft.comments, tail=_LEFT_OPEN)
    spec, model = draft.spec, draft.get("model")
    if isinstance(model, str) and (output.parent / model).exists():
        spec = {**spec, "model": str(output.parent / model)}
    return text, planned(spec)  # the text is written whatever comes of it


_LEFT_OPEN: Final = (
    "Everything else has a default, or is chosen by dsgen. Often set:",
    "  training: {sequence_length: 4096, precision: bf16, learning_rate: 1.0e-4, "
    "duration: {tokens: 300e9}}",
    "  data: {path: ..., tokenizer: {path: ...}}",
    "  output: {checkpoints: /shared/run}",
    "  layout: {tensor: 2, zero_stage: 1, micro_batch: 1, recompute: full}",
    "  launch: {script: train.py, arguments: [...], time_limit: 1-00:00:00}",
    "All keys: dsgen schema job",
)


def _mark_guess(draft: Keys, answers: Mapping[str, Any], *, taken: bool = False) -> None:
    """Comment on a network rate that is assumed, and print it where nobody is asked.

    Where there is a terminal, the user has confirmed the rate, unless the machines are `taken` from
    the proposals.
    """
    from .questions import RATE, is_asked  # here, to save start-up time

    is_confirmed = is_asked() and not taken
    if not isinstance(draft.get("cluster"), dict) or is_confirmed or RATE in answers:
        return
    draft.comments[RATE] = (
        "an assumption, to be corrected: all network cards of a node, one direction; 0 for one node"
    )
    if not is_asked():
        echo(f"an assumption, to be corrected: {RATE}: {draft.get(RATE):g}", err=True)


def _tell(outcome: Outcome, *, err: bool) -> None:
    """Print what came of planning the spec."""
    from ..estimate.uncertainty import seconds_with_band  # here, to save start-up time
    from ..job.records import Pins
    from ..search.compare import TIME_BAND
    from ..search.suggestions import faster_nearby
    from .answers import nearby, obstacle
    from .tables import print_parts

    for finding in outcome.of_launch:
        where = finding.where
        echo(f"{where.path}:{where.line}:{where.column}: error: {_in_words(finding)}", err=True)
    told = set()  # the same arguments may stand in two files
    for finding in outcome.findings:
        if finding.severity.value != "note" and (finding.rule, finding.message) not in told:
            told.add((finding.rule, finding.message))
            echo(_of_key(finding), err=True)

    if outcome.infeasible is not None:
        print_parts(*obstacle(outcome.infeasible), err=err)
        echo("The spec was written, but no layout of it fits.", err=True)
    elif outcome.plan is not None:
        plan = outcome.plan
        step = seconds_with_band(plan.step_time.total_s, plan.uncertainty.step_time)
        is_pinned = plan.job.pins != Pins()
        title = "your layout" if is_pinned else "best plan"
        print_parts(f"{title}: {plan.in_words()}, {step} per step", err=err)
        price = _price(plan)
        if price:
            print_parts(price.partition("; ")[2], err=err)  # its own time stands above
        elif is_pinned:
            print_parts(
                f"without pins: no layout is over {TIME_BAND:.0%} faster with all else as it is",
                err=err,
            )
        if is_pinned:
            for _, changes in nearby(plan, faster_nearby(plan)):
                print_parts(f"faster: {changes}", err=err)


def _of_key(finding: Finding) -> str:
    """A finding on a spec that isn't written yet, as a line that names the key."""
    key = finding.where.pointer[1:].replace("/", ".")
    if not key:  # it is in a file of the plan, which there isn't yet either
        key = f"{Path(finding.where.path).name}, as dsgen would write it"
    text = _OF_DRAFT.sub("", _in_words(finding))
    place = "" if text.startswith(f"{key}:") else f"{key}: "
    return f"{finding.severity.value}: {place}{text}"
