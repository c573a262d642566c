"""The records that planning passes on to writing: a `Program` is what every process of a job runs,
a `Launcher` writes the files that start it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from math import ceil, isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ..dataclass import dataclass
from ..job.arguments import (
    argument_values,
    gives,
    is_fine_tuning,
    is_module_name,
    options_of,
    without,
)
from ..job.needs import continuation
from ..job.records import Job, JobLaunch
from ..numerals import python_float, read_whole, whole
from ..patterns import lazy_pattern

_WRITTEN_BY: Final = lazy_pattern(rb"^# Written by dsgen .*\n", re.MULTILINE)
#: What the log of a trial begins with; its number follows. It is how logs are recognised, whoever
#: collected them.
TRIAL: Final = "dsgen trial"
TRIAL_LOG: Final = "log.txt"  #: in the trial's folder, where its launcher writes it
DEFAULT_STEPS = 1000  #: optimizer steps when the job gives no duration, and the script requires one
WARMUP_FRACTION: Final = 0.01  #: of the steps of a pretraining
_WARMUP_OF_TUNING: Final = 0.03  #: of shorter runs. Source: Alpaca's and QLoRA's recipes
_LOGGED_S: Final = 60  #: at most between two lines of the log, where a step is shorter
#: Of Adam, as `EPSILON` and `beta2`: frameworks have different defaults, and one plan is to train
#: alike with all of them.
BETA1 = 0.9
EPSILON = 1e-8
#: Before the program's own clock starts: containers, imports, the rendezvous.
_STARTING_S: Final = 300
_LEAST_MARGIN_S: Final = 600  #: between the program's own end and the limit; assumed
#: Megatron's, which other scripts have taken over.
_USUAL_EXIT_OPTION: Final = "--exit-signal-handler"
#: Of Megatron, and of the Trainer; as `key_of` has them.
_STEPS: Final = ("--train-iters", "--max-steps")
_STEPS_KEY: Final = "train.train_iters"  #: of Megatron-Bridge's config
_SAMPLES: Final = "--train-samples"  #: of Megatron-LM and Megatron-DeepSpeed, as the next four
_TOKENS: Final = "--train-tokens"
_BATCH: Final = "--global-batch-size"
_RAMP: Final = "--rampup-batch-size"
_SCHEDULE: Final = "--step-batch-size-schedule"
_UNITS_OF_TOKENS: Final = {"": 1, "K": 10**3, "M": 10**6, "B": 10**9, "T": 10**12}
#: One entry of such a schedule, tokens and the batch from there on: `500B:2304`.
_SCHEDULE_ENTRY: Final = lazy_pattern(r"([0-9]{1,18})([KMBT]?):([0-9]{1,9})", re.IGNORECASE)
_EPOCHS: Final = ("--num-train-epochs", "--num_train_epochs")  #: of the Trainer
#: How often its estimate a step or a checkpoint may take: storage is shared.
_TIMES_ESTIMATED: Final = 3
#: The file from which a launch script reads words of a program's arguments, one a line, where there
#: are many.
OVERRIDES: Final = "overrides.txt"


def trial_folder(number: int) -> str:
    """The folder of the files of a trial, numbered from 1."""
    return f"trial-{number}"


def count_folder(gpus: int) -> str:
    """The folder of the files for one count of GPUs of an elastic job."""
    return f"{gpus}gpus"


def from_the_scripts_folder(launch: JobLaunch, _: Path) -> str:
    """Say where a job is started whose processes run in the current folder."""
    if launch.is_module:
        return f"Start the job; Python has to find the module {launch.script} there:"
    if launch.script.startswith("/"):
        return f"Start the job; {launch.script} has to be there, or in the container:"
    return f"Start the job from the folder that holds {launch.script}:"


def as_written(options: Mapping[str, Any], _: Path, __: Path) -> Mapping[str, Any]:
    """The options as they are, where paths in them are no files of this machine."""
    return options


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheduler:
    """The program that takes the job, as the words of its commands: `{file}` is the launch file,
    `{name}` the job's.
    """

    submit: tuple[str, ...]
    #: asks whether the job would be taken, and starts nothing; None where that can't be
    trial: tuple[str, ...] | None
    #: Of what `submit` prints; its first group is the job's id. None: the command runs the job
    #: itself, until it ends.
    identity: str | None
    #: option of `watch` and `state` for the second group, where the job is in another cluster
    elsewhere: str = ""
    watch: tuple[str, ...] = ()  #: commands for the job `{id}` of `{file}`
    state: tuple[str, ...] = ()  #: prints the state of `{id}`; how a run ends that is waited for
    unfinished: str = r"\S"  #: of a state before the end
    #: brings the logs of `{id}` into `{folder}`, where they aren't in the job's folder
    collect: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Launcher:
    """One target of `launch.target`."""

    name: str  #: as in a job spec
    #: of a plan; the text is the command behind it
    files: Callable[[Plan, Program, str], tuple[RenderedFile, ...]]
    start: str  #: the command that starts the job; `{}` is the folder of its files
    file: str  #: that the scheduler is given
    scheduler: Scheduler
    token: str  #: what gives a run the HF_TOKEN that its model needs, which no file holds
    #: One file that runs trials of several plans, one after another, each in its `trial_folder`;
    #: and its name.
    trials: Callable[[Sequence[Plan], Sequence[Program], str], RenderedFile] | None = None
    reads_overrides: bool = False  #: whether its script reads `overrides.txt`
    trials_start_files: bool = True  #: whether that file starts the launch files of the trials
    #: What starts an elastic job on the nodes that it got; of its plans, largest first, and that
    #: one's launch file.
    pick: Callable[[Sequence[Plan], RenderedFile, str], tuple[RenderedFile, ...]] | None = None
    for_whole_runs: frozenset[str] = frozenset()  #: keys that a trial doesn't have
    #: whether the job runs in the folder that it is started from, which holds the script
    in_folder: bool = True
    #: the folder that has to hold the script
    uploaded: Callable[[JobLaunch, Path], Path | None] = lambda _, __: None
    #: Its options, with paths from where the spec is as paths from the files' folder, where only
    #: these lead somewhere.
    placed: Callable[[Mapping[str, Any], Path, Path], Mapping[str, Any]] = as_written
    #: Notes on what a plan loses with its machines, or they need.
    lost: Callable[[Plan], Iterable[str]] = lambda _: ()
    #: what to do first, said above that command
    before: Callable[[JobLaunch, Path], str] = from_the_scripts_folder
    #: words that its commands need for what is in that file
    extra_words: Callable[[Path], tuple[str, ...]] = lambda _: ()

    def command(self, folder: Path) -> str:
        """The command that starts the job whose files are in `folder`."""
        name = str(folder)
        start = self.start.format(shlex.quote(f"./{name}" if name.startswith("-") else name))
        return " ".join((start, *map(shlex.quote, self.extra_words(folder / self.file))))


if TYPE_CHECKING:  # for types alone, to save start-up time: it needs numpy
    from ..search.plan import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderedFile:
    """A file to be written: relative path and whole text."""

    path: str
    text: str
    executable: bool = False


def less_its_command(content: bytes) -> bytes:
    """A file without the line that says which command wrote it: another one may write the same."""
    return _WRITTEN_BY.sub(b"", content, count=1)


def content_hash(content: bytes) -> str:
    """The SHA-256 of what dsgen wrote, whichever of its commands did."""
    import hashlib  # here, to save start-up time: it loads a library of the system

    return hashlib.sha256(less_its_command(content)).hexdigest()


@dataclass(frozen=True, slots=True)
class ConfigPath:
    """An argument that is the path of a rendered file, which only the launcher knows at run
    time.
    """

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ArgumentGroup:
    """Arguments that belong together, with a comment that says why they are what they are."""

    comment: str
    arguments: tuple[str | ConfigPath, ...]
    #: whether launch scripts read its words from `overrides.txt`, one a line
    listed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Resume:
    """An argument that a start adds by itself: the last whole checkpoint, if there is one."""

    option: str
    folder: str  #: that holds the checkpoints, as the program sees it
    prefix: str  #: of a checkpoint's name; the step follows


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """The script that every process of the job runs and its arguments, independent of who starts
    it.
    """

    script: str
    groups: tuple[ArgumentGroup, ...]
    #: what the framework needs; the user's own variables come on top
    environment: Mapping[str, str]
    files: tuple[RenderedFile, ...]  #: configuration files, e.g. ds_config.json
    notes: tuple[str, ...] = ()  #: choices a reader would question, for the launch script's header
    #: None: the program finds its last checkpoint itself, or doesn't go on
    resume: Resume | None = None

    @property
    def is_module(self) -> bool:
        """Whether Python finds it by its name, with `-m`: it is no file."""
        return is_module_name(self.script)

    @property
    def start(self) -> tuple[str, ...]:
        """The words by which torchrun and Python start it."""
        return ("-m", self.script) if self.is_module else (self.script,)

    @property
    def arguments(self) -> tuple[str | ConfigPath, ...]:
        return tuple(argument for group in self.groups for argument in group.arguments)

    @property
    def lists(self) -> bool:
        """Return whether some of its arguments are to be read from `overrides.txt`."""
        return any(group.listed for group in self.groups)


Value = str | int | float | bool | ConfigPath | tuple[int, ...] | tuple[str, ...] | None


def warmup_steps(plan: Plan) -> int | None:
    """Steps in which the learning rate rises; `None` where the length isn't known."""
    steps = plan.job.training.steps
    is_tuned = is_fine_tuning(plan.job.training.start, plan.job.launch.arguments)
    share = _WARMUP_OF_TUNING if is_tuned else WARMUP_FRACTION
    return None if steps is None else ceil(steps * share)


def log_interval(plan: Plan) -> int:
    """Steps between two lines of the log: those of a minute, at most the 100 of Megatron's
    default.
    """
    step_s = float(plan.step_time.total_s)
    fitting = (steps for steps in (100, 50, 20, 10, 5, 2) if steps * step_s <= _LOGGED_S)
    return next(fitting, 1)


def beta2(job: Job) -> float:
    """Decay of the second moment.

    **Source**: 0.95 for language models (GPT-3, arXiv 2005.14165, appendix B); 0.999 for encoders
    (BERT, 1810.04805) and to go on from trained weights (QLoRA, 2305.14314, appendix B.4;
    TrainingArguments).
    """
    is_tuned = is_fine_tuning(job.training.start, job.launch.arguments)
    return 0.95 if job.model.causal and not is_tuned else 0.999


def _words(option: str, value: Value) -> tuple[str | ConfigPath, ...]:
    """One option: True is a bare flag; False and None leave it out; of a tuple each value is a
    word.
    """
    if value is None or isinstance(value, bool):
        return (option,) if value else ()
    if isinstance(value, ConfigPath):
        return (option, value)
    if isinstance(value, tuple):
        return (option, *map(str, value))
    return (option, repr(value).removesuffix(".0") if isinstance(value, float) else str(value))


def group(comment: str, options: Mapping[str, Value]) -> ArgumentGroup:
    """A group of arguments in the mapping's order."""
    words = (word for option, value in options.items() for word in _words(option, value))
    return ArgumentGroup(comment=comment, arguments=tuple(words))


def make_program(
    job: Job,
    groups: Iterable[ArgumentGroup],
    *,
    environment: Mapping[str, str] | None = None,
    files: tuple[RenderedFile, ...] = (),
    notes: tuple[str, ...] = (),
    resume: Resume | None = None,
) -> Program:
    """The job's script with the groups that hold any argument.

    An option that the job's own arguments give is left to them; they come last.
    """
    comment = "from the job's launch.arguments"
    if job.framework.goes_on_from_weights and gives(job.launch.arguments, "--model_name_or_path"):
        comment += ", and --model_name_or_path from its model where these name none"
    spec_group = ArgumentGroup(comment=comment, arguments=job.launch.arguments)
    of_spec = [option.written for option in options_of(job.launch.arguments)]
    left = (replace(group, arguments=tuple(without(group.arguments, of_spec))) for group in groups)
    filled = tuple(group for group in (*left, spec_group) if group.arguments)
    return Program(
        script=job.launch.script,
        groups=filled,
        environment=environment or {},
        files=files,
        notes=notes,
        resume=resume,
    )


def holds(arguments: Iterable[str], value: object) -> bool:
    """Return whether a value is among `arguments`, after whatever option: the script's own names
    aren't known.
    """
    return any(value in (argument, argument.partition("=")[2]) for argument in arguments)


def exit_minutes(plan: Plan) -> int | None:
    """Minutes after which the program has to save and exit by itself; it checks after each step.

    None where there is no time limit, or where Slurm sends a signal before it and the job's script
    then queues the job again: a program that had exited by itself would look finished.
    """
    launch = plan.job.launch
    signalled = launch.options.get("signal_seconds") or continuation(plan.job) == "requeue"
    if launch.time_limit_s is None or signalled:
        return None
    needed_s = _STARTING_S + 2 * (plan.saving.step_s + plan.saving.save_s)
    margin_s = min(max(_LEAST_MARGIN_S, needed_s), launch.time_limit_s / 2)
    return max(1, int(launch.time_limit_s - margin_s) // 60)


def saves_on_term(plan: Plan, program: Program) -> bool:
    """Return whether the script is asked to save and exit when it gets TERM."""
    asked = (*program.arguments, *plan.job.launch.arguments)
    return gives(asked, plan.job.framework.exit_option or _USUAL_EXIT_OPTION)


def last_save_s(plan: Plan) -> float:
    """Seconds that a program may need to end its step and save it."""
    return _TIMES_ESTIMATED * (plan.saving.step_s + plan.saving.save_s)


def step_option(program: Program) -> str | None:
    """The option among the program's arguments that says its last step, as it is written there."""
    options = reversed(options_of(tuple(map(str, program.arguments))))
    by_key = _STEPS_KEY if gives(program.arguments, _STEPS_KEY) else None
    with_steps = (option for option in options if option.key in _STEPS and option.values)
    return next((option.written for option in with_steps), by_key)


def last_step(plan: Plan, program: Program) -> int:
    """The step that the run ends with: what the program is told, else the job's duration; 0 if that
    can't be known.

    Megatron makes steps of sequences as `steps_of_samples` does; of tokens, where the batch or the
    sequence may grow, it counts them as it goes.
    """
    option = step_option(program)
    if option is not None:
        return _number(program, option) or 0
    if gives(program.arguments, _SAMPLES):
        return _last_step_by_samples(plan, program)
    if gives(program.arguments, _TOKENS) or epochs(plan, program):
        return 0
    return plan.job.training.steps or 0


def _last_step_by_samples(plan: Plan, program: Program) -> int:
    """The last step of a program that is told how many sequences to train on; 0 if unknown."""
    samples = _number(program, _SAMPLES)
    schedule = schedule_of(_first_value(program, _SCHEDULE))
    if samples and schedule:
        return steps_of_schedule(samples, plan.job.training.sequence_length, schedule)

    numbers = map(read_whole, argument_values(program.arguments, _RAMP) or ())
    ramp = tuple(number or 0 for number in numbers)
    is_ramp_understood = not ramp or (len(ramp) == 3 and all(ramp))
    if gives(program.arguments, _TOKENS) or not (samples and is_ramp_understood):
        return 0
    batch = _number(program, _BATCH) or plan.layout.global_batch
    return steps_of_samples(samples, batch, ramp)


def schedule_of(text: str) -> tuple[tuple[int, int], ...]:
    """The entries of a schedule in order: the tokens from which a batch holds, and the batch.

    Empty where an entry can't be read.
    **Source**: NVIDIA/Megatron-LM megatron/core/num_microbatches_calculator.py:482-530 @
    core_v0.19.0.
    """
    matches = [_SCHEDULE_ENTRY.fullmatch(word) for word in text.replace(",", " ").split()]
    entries = [
        (whole(match[1]) * _UNITS_OF_TOKENS[match[2].upper()], whole(match[3]))
        for match in matches
        if match is not None
    ]
    return tuple(sorted(entries)) if len(entries) == len(matches) else ()


def steps_of_schedule(samples: int, length: int, schedule: tuple[tuple[int, int], ...]) -> int:
    """Steps in which Megatron trains on so many sequences, the last ones in a whole batch.

    `length` are the tokens of a sequence, and `schedule` the batches by tokens.
    **Source**: NVIDIA/Megatron-LM megatron/training/training.py:1528-1543 @ core_v0.19.0.
    """
    consumed = steps = 0
    # A batch holds until the tokens of the next entry; the last one until the end.
    ends = [tokens // length for tokens, _ in schedule[1:]] + [samples]
    for (_, batch), end in zip(schedule, ends, strict=True):
        remaining = min(end, samples) - consumed
        steps_with_batch = max(0, -(-remaining // batch))  # rounded up
        consumed += steps_with_batch * batch
        steps += steps_with_batch
    return steps


def steps_of_samples(samples: int, batch: int, ramp: tuple[int, ...] = ()) -> int:
    """Steps in which Megatron trains on so many sequences, the last ones that fill no batch left
    out.

    The ramp is the first batch, its increment, and the sequences until the batch is whole.

    **Source**: Megatron-LM core_v0.16.1, megatron/training/training.py, update_train_iters;
    core/num_microbatches_calculator.py, RampupBatchsizeNumMicroBatchesCalculator.update.
    """
    consumed = steps = 0
    if ramp:
        first_batch, increment, ramped_samples = ramp
        increments = max(1, (batch - first_batch) // increment)
        samples_per_increment = ramped_samples / increments
        ramp_end = min(ramped_samples, samples)
        while consumed <= ramp_end:
            increments_made = int(consumed / samples_per_increment)
            size = min(batch, first_batch + increments_made * increment)
            # All the steps of this size at once: up to the next increment, or past the ramp's end.
            next_increment = ceil((increments_made + 1) * samples_per_increment)
            remaining = min(next_increment, ramp_end + 1) - consumed
            steps_of_size = max(1, -(-remaining // size))  # rounded up
            consumed += steps_of_size * size
            steps += steps_of_size
    return steps + max(0, samples - consumed) // batch


def length_words(program: Program) -> tuple[str, ...]:
    """The arguments that `last_step` was counted from, each option with its values, where no step
    is among them.
    """
    if step_option(program) is not None:
        return ()
    keys = (_SAMPLES, _BATCH, _RAMP, _SCHEDULE, *_EPOCHS)
    options = options_of(tuple(map(str, program.arguments)))
    return tuple(
        " ".join((option.written, *option.values)) for option in options if option.key in keys
    )


def epochs(plan: Plan, program: Program) -> int:
    """Passes over the data that the Trainer makes, where no step ends it; 0 for other programs.

    **Source**: transformers 5.23, trainer.py: num_train_epochs, 3 by default, rounded up in
    trainer_state.json.
    """
    if plan.job.framework.checkpoints.tracker is not None or step_option(program) is not None:
        return 0
    written = (argument_values(program.arguments, name) for name in _EPOCHS)
    values = next(filter(None, written), ("3",))
    passes = python_float(values[0])
    return ceil(passes) if passes is not None and isfinite(passes) else 0


def _number(program: Program, option: str) -> int | None:
    """The whole number after an option, if there is one."""
    return read_whole(_first_value(program, option))


def _first_value(program: Program, option: str) -> str:
    """The word after an option among the program's arguments; empty where there is none."""
    values = argument_values(program.arguments, option)
    return values[0] if values else ""


def resumes(plan: Plan) -> bool:
    """Return whether a start goes on from what is saved, so that a finished run has nothing left to
    do.
    """
    restart_option = plan.job.framework.starts_anew
    if restart_option and gives(plan.job.launch.arguments, restart_option):
        return False
    return plan.job.output.resume
