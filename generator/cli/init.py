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
    if str(output) != STDOUT and output.exists() and not force:
        echo(f"{output}: error: file exists", err=True)
        echo(
            "hint: use --force to overwrite it, or -o for another file; nothing was written",
            err=True,
        )
        raise click.exceptions.Exit(ExitStatus.WOULD_OVERWRITE)
    answers: dict[str, Any] = {
        path: parse_value(value)
        if isinstance(value, str) and path not in ("model", "cluster")
        else value
        for path, value in request.overrides.items()
    }
    if purpose:
        answers["purpose"] = purpose
    if isinstance(answers.get("cluster"), str):
        answers["cluster"] = read_cluster(answers["cluster"])
        answers = with_network(answers, answers) if RATE in answers else answers
    paths = (*sources, *more)
    with checking(paths or (".",)):
        text, outcome = _spec_of_files(paths, answers, output) if paths else _asked(answers, output)
    printed = str(output) == STDOUT  # all else that is said goes to standard error then
    _tell(outcome, err=printed)
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
    # as a virtual environment in the project is, wherever that is cloned to
    inside = installed.is_relative_to(folder)
    schema = f"./{installed.relative_to(folder).as_posix()}" if inside else str(installed)
    return [
        "yaml-language-server: "
        f"$schema={SCHEMA_NAME if (folder / SCHEMA_NAME).is_file() else schema}"
    ]


def _spec_of_files(
    paths: Sequence[str], answers: Mapping[str, Any], output: Path
) -> tuple[str, Outcome]:
    """The spec of the launch that files hold, as text, and what became of its settings."""
    from ..draft import carry_over, spec_text, why_unwritten  # here, to save start-up time
    from ..job.needs import listed_versions

    draft = _draft(paths, answers)
    _fill_batch(draft, {}, "not in the files: sequences, or tokens, of an optimizer step")
    if isinstance(answers.get("cluster"), dict):
        _mark_guess(draft, answers)
    outcome = carry_over(draft)._replace(unwritten=why_unwritten(draft))
    if outcome.unwritten:  # no file of the plan repeats what is wrong in it
        outcome = outcome._replace(of_launch=_errors_in(paths, draft))
    if isinstance(model := draft.get("model"), str):
        draft.set("model", _from_here(model, output))

    if outcome.unwritten:
        set_these = "set the values of settings.txt, which a plan has, in it by hand"
        draft.leave("launch", draft.found.where, f"{outcome.unwritten}: {set_these}")
    notes = [str(note) for note in draft.left]
    if len(notes) > _MOST_NOTES:
        notes[_MOST_NOTES:] = [f"and {len(notes) - _MOST_NOTES:,} more"]
    for note in notes:
        echo(f"not carried over: {note}", err=True)

    if outcome.of_launch and draft.get("training.global_batch") is not None:
        draft.comments["training.global_batch"] = "of a launch with errors, which are named below"
    errors = [
        f"{PurePath(one.where.path).name}:{one.where.line}: {_said(one)}"
        for one in outcome.of_launch
    ]
    lists = {
        "Errors of the launch:": errors,
        "Not carried over:": notes,
        "Added by dsgen:": outcome.added,
    }
    if outcome.plan is not None and not outcome.unwritten:
        lists["Its files are written for:"] = (listed_versions(outcome.plan.job),)
    tail = [
        line
        for title, lines in lists.items()
        if lines
        for line in (title, *(f"  {line}" for line in lines))
    ]
    price = _price(outcome.plan)
    head = [
        *_head(output),
        f"From {', '.join(Path(path).name or path for path in paths)}, by dsgen init.",
        *([f"{price}. Leave `layout` out for that."] if price else []),
    ]
    text = spec_text(draft.spec, head=head, comments=draft.comments, tail=tail, from_files=True)
    return text, outcome


def _errors_in(paths: Sequence[str], draft: Draft) -> tuple[Finding, ...]:
    """The errors that `dsgen validate` finds in the launch that a draft is of."""
    from ..check.validate import validate  # here, to save start-up time

    findings = validate(paths).findings
    place = draft.found.where.path
    return tuple(
        one for one in findings if one.severity.value == "error" and one.where.path == place
    )


def _said(finding: Finding) -> str:
    """What a finding says, in one line."""
    hint = f"; {finding.hint}" if finding.hint else ""
    return f"{finding.message}{hint} [{finding.rule}]"


def _draft(paths: Sequence[str], answers: Mapping[str, Any]) -> Draft:
    """What the files say of the job; what they don't, and a plan needs, is asked."""
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

    said = {key: draft.get(key) for key in ("model", "cluster", "framework", "launch.target")}
    said |= {key: draft.get(key) for key in ("gpus", "nodes") if draft.get(key) is not None}
    said["framework"] = said["framework"] or "deepspeed"
    said["launch.target"] = said["launch.target"] or "slurm"
    is_missing = said["model"] is None or said["cluster"] is None
    if not is_missing and not {"gpus", "nodes"}.isdisjoint(said):
        return draft
    known = {key: value for key, value in said.items() if value is not None}
    told = answered(known, Proposals(), _hints(draft))
    # A purpose is no key of a spec: it sets others.
    new = {key: value for key, value in told.items() if said.get(key) is None and key != "purpose"}
    return draft_run(runs[0], runs[1:], {**answers, **new})


def _way_on(draft: Draft) -> str:
    """What to do with a launch that no spec says."""
    import shlex  # here, to save start-up time

    from ..draft.scripts import FILE_MISSING

    if draft.refused is not None and draft.refused.why.endswith(FILE_MISSING):
        return "add the folder that has it: dsgen init --from LAUNCH FOLDER"
    answers_by_flag = {f"--{key}": draft.get(key) for key in ("model", "cluster", "gpus")}
    answers_by_flag["--target"] = draft.get("launch.target") or "slurm"
    open_answers = {"--model": "MODEL", "--cluster": "NODE_TYPE"}  # it can't do without these
    flags = (
        f"{flag} {shlex.quote(str(value))}"
        for flag, known in answers_by_flag.items()
        if isinstance(value := open_answers.get(flag) if known is None else known, str | int)
    )
    command = " ".join(("dsgen init", *flags, "--framework huggingface"))
    return (
        f"plan the training by itself: {command} --set training.sharding=fsdp2; "
        "dsgen validate checks this launch as it is"
    )


#: Keys of a spec whose text may name the accelerators of the nodes that it asks for.
_NAME_CARDS: Final = ("partition", "constraint")


def _hints(draft: Draft) -> dict[str, str]:
    """What the files say of questions that they leave open: `8 GPUs a node (sft.sbatch:7)`."""
    from ..catalog import find_accelerator  # here, to save start-up time
    from ..catalog.names import nodes_with
    from ..submission.world import world_of

    claim = next(iter(world_of(draft.found.submission).claims_on("GPUs per node")), None)
    if claim is None:
        return {}

    named = (find_accelerator(str(draft.get(f"launch.slurm.{key}"))) for key in _NAME_CARDS)
    card = next((each for each in named if each is not None), find_accelerator("h100"))
    assert card is not None
    nodes = sorted(nodes_with(card, claim.value), key=lambda node: "dgx" not in node.name)
    such_as = " or ".join([f"{claim.value}x{card.name}", *(node.name for node in nodes[:1])])
    place = ":".join(str(part) for part in (Path(claim.where.path).name, claim.where.line) if part)
    return {"cluster": f"{claim.value} GPUs a node ({place}): such as {such_as}"}


def _price(plan: Plan | None) -> str:
    """What the layout of a launch costs; nothing where the chosen one is no faster."""
    from ..search.instead import unpinned, unpinned_text  # here, to save start-up time

    free = unpinned(plan) if plan else None
    return unpinned_text(plan, free) if plan and free else ""


def _fill_batch(draft: Keys, told: Mapping[str, Any], why: str) -> None:
    """Set a usual batch where nobody says one."""
    from .example import usual_batch  # here, to save start-up time

    if draft.get("training.global_batch") is None:
        draft.set("training.global_batch", usual_batch(told.get("purpose", ""), told))
        draft.comments["training.global_batch"] = why


def _from_here(model: str, output: Path) -> str:
    """A model's path as the spec has it, which reads it from its own folder."""
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
    # what files say beside the questions, for the target that was chosen
    for key, value in proposed.values.items():
        target = (
            key.split(".")[1]
            if key.startswith("launch.") and key.count(".") == 2
            else told["launch.target"]
        )
        asked = key in ("model", "cluster", "gpus", "nodes", "framework", "launch.target")
        if not asked and target == told["launch.target"] and draft.get(key) is None:
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
    """Comment on a network rate that is assumed, and tell of it where nobody confirmed the spec."""
    from .questions import RATE, is_asked  # here, to save start-up time

    if not isinstance(draft.get("cluster"), dict) or (is_asked() and not taken) or RATE in answers:
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
        echo(f"{where.path}:{where.line}:{where.column}: error: {_said(finding)}", err=True)
    told = set()  # of the same arguments in two files, once
    for finding in outcome.findings:
        if finding.severity.value != "note" and (finding.rule, finding.message) not in told:
            told.add((finding.rule, finding.message))
            # What no key of the spec names is in a file that there isn't yet.
            key = finding.where.pointer[1:].replace("/", ".")
            key = key or f"{Path(finding.where.path).name}, as dsgen would write it"
            said = _OF_DRAFT.sub("", _said(finding))
            place = "" if said.startswith(f"{key}:") else f"{key}: "
            echo(f"{finding.severity.value}: {place}{said}", err=True)
    if outcome.infeasible is not None:
        print_parts(*obstacle(outcome.infeasible), err=err)
        echo("The spec was written, but no layout of it fits.", err=True)
    elif outcome.plan is not None:
        plan = outcome.plan
        step = seconds_with_band(plan.step_time.total_s, plan.uncertainty.step_time)
        is_pinned = plan.job.pins != Pins()
        title = "your layout" if is_pinned else "best plan"
        print_parts(f"{title}: {plan.in_words()}, {step} per step", err=err)
        if price := _price(plan):
            print_parts(price.partition("; ")[2], err=err)  # its own time stands above
        elif is_pinned:
            print_parts(
                f"without pins: no layout is over {TIME_BAND:.0%} faster with all else as it is",
                err=err,
            )
        for _, changes in nearby(plan, faster_nearby(plan)) if is_pinned else ():
            print_parts(f"faster: {changes}", err=err)
