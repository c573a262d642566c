"""`#SBATCH` lines as text and as sbatch reads them: which count, and whether each is an option."""

from __future__ import annotations

import difflib
import re
from typing import Final

from ....findings import ERROR, NOTE, WARNING, Edit, Violation, Violations
from ....numerals import is_whole
from ....patterns import lazy_pattern
from ....places import is_placeholder
from ....rules.violations import slurm, slurm_manual
from ....submission.script import LaunchScript
from ....submission.subjects import scripts
from ....text.options import Argument, Table
from ....text.shell.records import Directive, ShellScript, Word
from ....text.shell.tokens import HOLE
from ....text.slips import is_slip
from ....text.wording import counted, show
from ...launching.tables import TABLES
from ..request import GPU_OPTIONS, Request
from ..subjects import batch_scripts, blocks, requests
from .options import MEMORY, memory_meant

_ALIKE: Final = 0.75  # of difflib's ratio: one letter in four differs
#: Hyphens and dashes that word processors put in the place of the plain one.
_DASHES: Final = "\u2010\u2011\u2012\u2013\u2014\u2015\u2212"
#: Names that other schedulers, srun, and DeepSpeed's users have for an option of sbatch.
_OTHER_NAMES: Final = {
    "--walltime": "--time",
    "--queue": "--partition",
    "--name": "--job-name",
    "--memory": "--mem",
    "--mem-per-node": "--mem",
    **dict.fromkeys(("--cpus", "--cores", "--cores-per-task"), "--cpus-per-task"),
    "--gpu": "--gpus-per-node",
    "--tasks": "--ntasks",
    "--workdir": "--chdir",
    "--share": "--oversubscribe",
    "--email": "--mail-user",
    "--logfile": "--output",
    "-g": "-G",
}
#: Options that may be given again: each adds to those before. Sources: src/common/slurm_opt.c:2520
#: @ slurm-22-05-8-1; pyxis args.c, add_mount
_ADDED_UP: Final = frozenset(
    {"--mail-type", "--gres-flags", "--container-mounts", "--container-env"}
)
_SHORT: Final = 5  # letters of a name of which nearly every other one has some
#: Options of srun, which sbatch refuses; they belong on the srun line.
_OF_SRUN: Final = frozenset(
    {
        "--cpu-bind",
        "--kill-on-bad-exit",
        "--label",
        "--unbuffered",
        "--mpi",
        "--overlap",
        "--exact",
        "--pty",
        "--multi-prog",
        "--task-prolog",
        "--task-epilog",
        "--het-group",
    }
)


def _did_you_mean(name: str, table: Table) -> str | None:
    """The option that a misspelt one is for."""
    stem = name.lstrip("-").lower().replace("_", "-")
    long = {option.lstrip("-"): option for option in table.options if option.startswith("--")}
    # Plug-ins of a site add options of their own. Of a short name only one letter is a slip.
    if len(stem) <= _SHORT:
        near = [other for other in long if is_slip(stem, other)]
    else:
        near = difflib.get_close_matches(stem, long, n=1, cutoff=_ALIKE)
    return _OTHER_NAMES.get(name) or (long[near[0]] if near else None)


@batch_scripts.rule("SLM007", ERROR, "silent", slurm("sbatch/opt.c:578, _opt_batch_script"))
def directives_come_first(script: LaunchScript) -> Violations:
    """Every #SBATCH line is above the script's first command.
    Prevents: The option is ignored silently: a job of one node, or with the default time limit.
    Fix: move the line above the first command; even `set -e` is one"""
    shell = script.shell
    late = [directive for directive in shell.directives if directive.ignored and directive.words]
    read = {_written(directive) for directive in shell.directives if not directive.ignored}
    # A line that only repeats one that sbatch reads takes nothing away.
    ignored = [directive for directive in late if _written(directive) not in read]
    if not ignored or _is_notes(script):
        return
    directive, *others = ignored
    command = shell.commands[0] if shell.commands else None
    after = "a command"
    is_above = command is not None and command.offset < directive.offset
    if command is not None and is_above and not _is_in_text(shell, directive):
        after = f"the command on line {shell.locate(command).line}"
    more, they_are = (f", as do {len(others)} more", "they are") if others else ("", "it is")
    message = (
        f"#SBATCH {_written(directive)} comes after {after}{more}: sbatch stops reading there, "
        f"so {they_are} ignored"
    )
    hint = "move #SBATCH lines above the first command"
    yield Violation(shell.locate(directive), message, hint)


def _written(directive: Directive) -> str:
    return " ".join(word.raw for word in directive.words).replace(HOLE, "...")


def _is_notes(script: LaunchScript) -> bool:
    """Whether the file is notes: sbatch takes neither it nor any of its #SBATCH lines."""
    return script.shell.shebang is None and all(
        directive.ignored for directive in script.shell.directives
    )


@requests.rule(
    "SLM023", ERROR, "submit", slurm("common/slurm_opt.c, its table; later options up to 26.05")
)
def every_option_is_known(request: Request) -> Violations:
    """Every option given to sbatch, salloc or srun is one that it has.
    Prevents: sbatch: unrecognized option. A note where no option is alike: a plug-in of the site
    may add it.
    Fix: correct the name
    """
    for option in request.options.unknown:
        written = option.written.value
        if written is None or _matches(request, option.name):
            continue
        name, near = option.name, _did_you_mean(option.name, request.table)
        is_of_srun = request.program == "sbatch" and name in _OF_SRUN
        hint = f"did you mean {near}?" if near else "see sbatch --help on the cluster"
        if is_of_srun:
            hint = f"give {name} to srun: srun {written} ..."
        if name.startswith("--") and not (is_of_srun or near):
            effect, severity = "if no plug-in of the site adds it", NOTE
        else:
            effect, severity = f"which refuses the {'script' if request.block else 'call'}", ERROR
        message = f"{request.title} {name}: unknown option of {request.program}, {effect}"
        yield Violation(request.shell.locate(option.written), message, hint, severity=severity)


def _matches(request: Request, name: str) -> list[str]:
    """The options that an abbreviation may stand for."""
    options = request.table.options if name.startswith("--") and len(name) > 2 else {}
    return sorted(
        {option.name for spelling, option in options.items() if spelling.startswith(name)}
    )


@requests.rule(
    "SLM024", ERROR, "submit", slurm_manual("sbatch(1); getopt_long(3), on abbreviations")
)
def abbreviations_are_unambiguous(request: Request) -> Violations:
    """A shortened option is the beginning of one option only.
    Prevents: sbatch: option '--gpu=8' is ambiguous.
    Fix: write the option in full"""
    for option in request.options.unknown:
        options = _matches(request, option.name)
        if len(options) > 1 and option.written.value is not None:
            message = (
                f"{request.title} {option.name} may stand for {len(options)} options: "
                f"{', '.join(options[:4])}"
            )
            hint = f"did you mean {_did_you_mean(option.name, request.table) or options[0]}?"
            yield Violation(request.shell.locate(option.written), message, hint)


@requests.rule("SLM026", ERROR, "submit", slurm_manual("sbatch(1), OPTIONS; getopt_long(3)"))
def options_have_their_values(request: Request) -> Violations:
    """An option has a value where it requires one, and none where it accepts none.
    Prevents: sbatch: option '--nodes' requires an argument, or '--requeue' doesn't allow one.
    Fix: give the value, or leave it out"""
    for option in request.options.entries:
        entry = request.table.find(option.name) if option.known else None
        if entry is None:
            continue

        argument = request.view(option, None)
        written = option.written.value or ""
        edits = tuple[Edit, ...]()
        if entry.values and not option.values and not request.opaque:
            message = f"{argument} has no value, and {request.program} requires one"
            hint = f"write {entry.name}=VALUE"
        elif entry.values and re.match(r"-[A-Za-z]=", written):
            # getopt takes the equals sign for part of the value.
            value = written[2:]
            message = f"{written} gives {option.name} the value {show(value)}, "
            message += "with the equals sign"
            hint = f"write {entry.name}{value}"
            edits = request.edit(option.written, f"{entry.name}{value}")
        elif not entry.values and not entry.optional and option.values:
            message = f"{argument} has a value, but the option accepts none"
            hint = f"write {entry.name}"
        else:
            continue
        yield Violation(argument.where, message, hint, edits=edits)


@blocks.rule("SLM027", ERROR, "submit", slurm("sbatch/opt.c:631, _opt_batch_script"))
def nothing_but_options(request: Request) -> Violations:
    """A #SBATCH line has options and their values only.
    Prevents: sbatch: error: Invalid directive found in batch script.
    Fix: quote values with spaces; put remarks behind a #"""
    hint = "put a value with spaces in quotes, and remarks behind a #"
    edits, severity = tuple[Edit, ...](), ERROR
    for word in request.options.rest[:1]:
        text = word.value or word.raw
        if text[:1] in _DASHES:
            plain = f"--{text.lstrip(_DASHES)}"
            hint = f"write two plain hyphens: {plain}"
            edits = request.edit(word, plain) if word.raw == text else ()
        elif word in request.left_open:
            hint, severity = "fill it in", NOTE
        elif (memory := _memory_with_unit(request, word)) is not None:
            hint = f"write {memory}"
        elif "=" in text and _did_you_mean(text.partition("=")[0], request.table):
            hint = f"did you mean --{text}?"
        message = (
            f"#SBATCH has the word {show(text)}, which is not an option: sbatch refuses the script"
        )
        yield Violation(request.shell.locate(word), message, hint, severity=severity, edits=edits)


def _memory_with_unit(request: Request, unit: Word) -> str | None:
    """The option that an amount of memory and its unit, a word of its own, were meant for."""
    before = [option for option in request.options.entries if option.written.offset < unit.offset]
    last = max(before, key=lambda option: option.written.offset, default=None)
    if last is None or last.name not in MEMORY or not is_whole(last.text or ""):
        return None
    meant = memory_meant(f"{last.text}{unit.value}")
    return None if meant is None else f"{last.name}={meant}"


@blocks.rule(
    "SLM033",
    WARNING,
    "silent",
    slurm("common/slurm_opt.c:5344, slurm_process_option: the last one holds"),
)
def options_are_given_once(request: Request) -> Violations:
    """A #SBATCH option is given once, or always with the same value.
    Prevents: A job of another size than the top of the script suggests. A note where only the name
    of the job or of its log differs, or who gets its mails.
    Fix: keep one"""
    seen: dict[str, Argument[str]] = {}
    for argument in request.valued():
        before = seen.get(argument.name, argument)
        if before.value != argument.value and argument.name not in _ADDED_UP:
            message = (
                f"{argument} replaces {argument.name}={before.value} on line {before.where.line}"
            )
            severity = NOTE if argument.name in _OF_REPORTS else None
            yield argument.bad_option(message, "keep one of the two", severity)
        seen[argument.name] = argument


#: Texts in quotes that are closed, and escaped signs.
_QUOTED: Final = lazy_pattern(r"""\\.|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'""", re.DOTALL)
#: A value may have quotes anywhere, and blanks behind the commas of a list.
_VALUE: Final = r"""(?:"(?:[^"\\]|\\.)*"|'[^']*'|\\.|,[ \t]+(?!-)|[^\s"'#\\])+"""
_OPTION: Final = rf"--?[A-Za-z][\w:.-]*(?:(?:=|[ \t]+(?![-#])){_VALUE})?"
#: A line of options and nothing else; with more words it is prose.
_NEARLY: Final = lazy_pattern(
    r"(?:[ \t]*#[ \t]*(S[A-Z]{3,6})|#([sS]batch))\b[ \t:]*"
    rf"{_OPTION}(?:[ \t]+{_OPTION})*[ \t]*(?:#|$)"
)
_DIRECTIVE: Final = lazy_pattern(r"#(?:SBATCH|SLURM)")
#: What a job is made of, by options that stand for each other: seldom left out on purpose where
#: none of them is there.
_RESOURCES: Final = (("--nodes",), ("--ntasks", "--ntasks-per-node"), GPU_OPTIONS)
#: What was meant for `SBATCH`, where the sign before it is wrong or letters are.
_SLIPS: Final = frozenset(
    {"SBATCH", "SBTACH", "SBACTH", "SABTCH", "SBATHC", "SBACH", "SBATC", "SBATH", "SBTCH"}
)
_PATHS: Final = ("--output", "--error", "--input")
#: Options whose texts Slurm shows or writes to, and does nothing else with.
_LABELS: Final = frozenset({"--job-name", "--mail-user"})
#: Options that change what a job is called and where it reports, and nothing of what it does.
_OF_REPORTS: Final = _LABELS | {"--output", "--error", "--open-mode", "--comment"}
_VARIABLE: Final = lazy_pattern(r"\$\{[A-Za-z_]\w*[^}\n]{0,100}\}?|\$[A-Za-z_]\w*|\$\(|`")
#: Options whose values are names and paths, which Slurm takes as they are.
_NAMED: Final = frozenset(
    {
        *_PATHS,
        "--chdir",
        "--job-name",
        "--account",
        "--partition",
        "--qos",
        "--mail-user",
        "--reservation",
        "--constraint",
        "--container-image",
        "--container-mounts",
        "--container-workdir",
    }
)
#: Options in which a dollar sign is no slip.
_FREE: Final = frozenset({"--comment", "--wrap", "--export"})
_NO_EXPANSION: Final = slurm("sbatch/opt.c:459, get_argument: no expansion of any kind")


@blocks.rule("SLM050", ERROR, "submit", slurm("sbatch/opt.c:525, get_argument"))
def quotes_are_closed(request: Request) -> Violations:
    """A quote that a #SBATCH line opens is closed on it.
    Prevents: sbatch: fatal: Unmatched `"`.
    Fix: close the quote on the same line"""
    lines = (line for line in request.shell.directives if not line.ignored)
    for word in (word for line in lines for word in line.words):
        unquoted = _QUOTED.sub("", word.raw)  # no more quotes but one that nothing closes
        mark = re.search(r"[\"']", unquoted)
        if mark:
            message = f"the {mark[0]} on this #SBATCH line is not closed: sbatch refuses the script"
            yield Violation(request.shell.locate(word), message, f"add a {mark[0]}")


@blocks.rule("SLM055", NOTE, "submit", slurm_manual("sbatch(1), --partition, --account"))
def placeholders_are_filled_in(request: Request) -> Violations:
    """No unfilled placeholder is left in a #SBATCH line.
    Prevents: sbatch: error: invalid partition specified: <your-partition>.
    Fix: fill it in"""
    placeholders = [each for each in request.valued() if is_placeholder(each.value)]
    if not placeholders:
        return
    first, *others = placeholders
    message = f"{first}: {show(first.value)} looks like a placeholder"
    if others:
        verb = "does" if len(others) == 1 else "do"
        message += f"; so {verb} {', '.join(f'{each.name}={each.value}' for each in others)}"
    yield first.bad_value(message, "fill it in")


@blocks.rule("SLM031", ERROR, "submit", _NO_EXPANSION)
def numbers_are_written_out(request: Request) -> Violations:
    """A #SBATCH line has no shell variables where Slurm reads a number or a time.
    Prevents: sbatch: error: "$NODES" is not a valid node count.
    Fix: write the value out, or give it on sbatch's command line"""
    yield from _variables(request, named=False)


@blocks.rule("SLM060", ERROR, "silent", _NO_EXPANSION)
def names_are_written_out(request: Request) -> Violations:
    """A #SBATCH line has no shell variables in names and paths.
    Prevents: A job that ends at once, as its log's folder, called $HOME, isn't there. A warning for
    the names of jobs and logs.
    Fix: write the value out, or give it on sbatch's command line"""
    yield from _variables(request, named=True)


def _variables(request: Request, *, named: bool) -> Violations:
    """The first variable in an option that is a name or path (`named`), or in any other."""
    with_variables = [
        argument
        for argument in request.valued()
        if (argument.name in _NAMED) == named
        and argument.name not in _FREE
        and argument.name not in request.given_when_submitted
        and _VARIABLE.search(argument.value)
    ]
    if not with_variables:
        return
    # Who fills in one fills in the others. The one that ends the job counts, where there is one.
    argument, *others = sorted(with_variables, key=_is_harmless)
    variable = _VARIABLE.search(argument.value)[0]  # type: ignore[index]  # it has one
    more = f", here and in {counted(len(others), 'more option')}" if others else ""
    hint = f"write the value out, or give it on the command line: sbatch {argument.name}=..."
    if argument.name in _PATHS:
        hint = "use sbatch's own patterns, such as %x-%j.out, and a literal path"
    message = (
        f"{argument}: sbatch expands no variables ({variable}); the text is used as it is{more}"
    )
    severity = WARNING if _is_harmless(argument) else None
    yield argument.bad_value(message, hint, severity=severity)


def _is_harmless(argument: Argument[str]) -> bool:
    """Whether a job runs all the same with a variable's name in the text of an option.

    It is a label, or the name of a log whose folder is written out. Slurm makes no folder.
    """
    if argument.name in _PATHS:
        return _VARIABLE.search(argument.value.rpartition("/")[0]) is None
    return argument.name in _LABELS


@batch_scripts.rule(
    "SLM032", ERROR, "submit", slurm("sbatch/sbatch.c:676 and 686, get_script_buffer")
)
def sbatch_takes_the_file(script: LaunchScript) -> Violations:
    """A batch script begins with #! and its lines end as on Unix.
    Prevents: This does not look like a batch script; Batch script contains DOS line breaks.
    Fix: begin with #!/bin/bash; convert the line ends"""
    text, directives = script.shell.text, script.shell.directives
    if not directives or all(_is_in_text(script.shell, each) for each in directives):
        return
    if script.shell.shebang is None:
        message = "the first line doesn't begin with #!: sbatch refuses the script"
        words = (word.raw for directive in directives for word in directive.words)
        may_be_template = _is_notes(script) or any(map(is_placeholder, words))
        severity = NOTE if may_be_template else None
        hint = "begin the file with #!/bin/bash"
        yield Violation(text.locate(0, 0), message, hint, severity=severity)
    dos_line_end = text.content.find("\r\n")
    if dos_line_end >= 0:
        message = "the lines end as on DOS (\\r\\n): sbatch refuses the script"
        hint = "convert the file: dos2unix, or sed -i 's/\\r$//'"
        yield Violation(text.locate_offset(dos_line_end), message, hint)


def _is_in_text(shell: ShellScript, directive: Directive) -> bool:
    """Whether a #SBATCH line is in the text of a command, which writes another script with it."""
    return any(
        word.offset < directive.offset < word.offset + len(word.raw)
        for command in shell.commands
        for word in command.words
    )


@scripts.rule(
    "SLM035", WARNING, "silent", slurm("sbatch/opt.c:570: a line counts if it begins with #SBATCH")
)
def directives_are_spelt(script: LaunchScript) -> Violations:
    """A comment that looks like a #SBATCH line is one: no space, no indentation, in capitals.
    Prevents: The option is ignored silently.
    Fix: write #SBATCH at the start of the line"""
    text, commands = script.shell.text, script.shell.commands
    if not script.shell.directives and not text.path.endswith((".sbatch", ".slurm")):
        return
    first_command = script.shell.locate(commands[0]).line if commands else None
    for number, line in enumerate(text.lines[: first_command or len(text.lines)]):
        match = None if _DIRECTIVE.match(line) else _NEARLY.match(line)
        word = (match[1] or match[2]).upper() if match else ""
        if word not in _SLIPS:
            continue
        begins, dash, options = line.partition("-")
        message = f"this is a comment to sbatch: it begins with {show(begins)}, not #SBATCH"
        hint = "write #SBATCH at the start of the line, or ##SBATCH to leave it out on purpose"
        name = re.split(r"[= ]", dash + options)[0]
        is_needed = _asks_for_more(script, name)
        is_on_purpose = word == "SBATCH" and line.startswith("# ") and not is_needed
        if _is_given(script, name):
            continue  # a line that was written anew
        where = text.locate(number, len(line) - len(line.lstrip()))
        yield Violation(where, message, hint, severity=NOTE if is_on_purpose else WARNING)


def _is_given(script: LaunchScript, name: str) -> bool:
    """Whether a directive of the script gives an option."""
    option = TABLES["sbatch"].find(name)
    return option is not None and script.directives.get(option.name) is not None


def _asks_for_more(script: LaunchScript, name: str) -> bool:
    """Whether an option asks for a resource of which no directive of the script says anything."""
    option = TABLES["sbatch"].find(name)
    resources = (names for names in _RESOURCES if option and option.name in names)
    same_resource = next(resources, ())
    return bool(same_resource) and not any(map(script.directives.has, same_resource))
