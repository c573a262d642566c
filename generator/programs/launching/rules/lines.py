"""Launch lines as such: known options, before the script, given once, a port that exists."""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator
from itertools import pairwise
from typing import Final, NamedTuple

from ....catalog.names import closest
from ....findings import ERROR, NOTE, WARNING, Severity, Violation, Violations
from ....job.arguments import is_module_name
from ....numerals import is_whole, read_whole
from ....patterns import lazy_pattern
from ....rules.violations import accelerate, derived, did_you_mean, note_if_to_fill, torch
from ....submission.launches import Call, Launch
from ....submission.repository import program_of, program_text
from ....submission.script import LaunchScript
from ....submission.subjects import launches, scripts, submissions
from ....submission.submission import Submission
from ....submission.world import world_of
from ....text.around import folders_above, is_there
from ....text.options import Argument, Option
from ....text.shell.records import SHELLS, Assignment, ShellScript
from ....text.slips import is_slip
from ....text.wording import show
from ..cut_off import lines_cut_off
from ..entry_points import file_of_command
from ..environment import variable_without_sign
from ..front_ends import of_command
from ..launch_line import LAUNCHERS
from ..launcher_call import NODES, PER_NODE, PORTS, LauncherCall, own_rendezvous
from ..subjects import accelerate_calls, launcher_calls
from ..tables import TABLES, program_name
from .broken_blocks import broken_blocks, line_from

#: What runs the file that it is given, unless it is told that it is a module.
_RUN_FILES: Final = frozenset({"torchrun", "deepspeed", "accelerate", "python"})
_MOST_PORT: Final = 65_535  # sixteen bits of TCP
_PRIVILEGED: Final = 1_024  # ports below are for root
#: Options that no training script has, so that behind the script they are misplaced.
_MISPLACED: Final = {
    "torchrun": (
        "nproc_per_node",
        "nnodes",
        "node_rank",
        "rdzv_backend",
        "rdzv_endpoint",
        "rdzv_id",
        "standalone",
    ),
    "deepspeed": (
        "num_gpus",
        "num_nodes",
        "hostfile",
        "include",
        "exclude",
        "no_ssh",
        "launcher",
        "force_multi",
    ),
    "accelerate": (
        "num_processes",
        "num_machines",
        "machine_rank",
        "main_process_ip",
        "main_process_port",
        "config_file",
    ),
}
_ZSH: Final = lazy_pattern(r"#![^\n]*\bzsh\b")
#: A line that ends in a backslash and blanks, with options on the next one.
_BROKEN_LINE: Final = lazy_pattern(
    r"^(?![ \t]*#)[^\n]*?(\\[ \t]+)\n[ \t]*(--?[A-Za-z][\w-]*)", re.MULTILINE
)
#: The same within a text, with another word on the next line.
_BROKEN_TEXT: Final = lazy_pattern(
    r"^(?![ \t]*#)[^\n]*?(\\[ \t]+)\n[ \t]*([^\s#\\-][^\s\"']*)", re.MULTILINE
)
_BLANK_AT_END: Final = lazy_pattern(r"\\[ \t]+\n")  #: of such a line, which few texts have
#: A line of a command that begins with #, and goes on.
_COMMENTED: Final = lazy_pattern(r"\\\n([ \t]*#[^\n]*)\\\n[ \t]*[^\s#]")
#: The beginning of a here-document, and the word that ends it.
#: A line that is neither a comment nor empty, and ends in a carriage return.
_COMMAND_RETURN: Final = lazy_pattern(r"^(?![ \t]*(?:#|\r?$))[^\n]*\r\n", re.MULTILINE)
#: A line of a command, and no comment, that ends in a backslash and a carriage return.
_BACKSLASH_RETURN: Final = lazy_pattern(r"^(?![ \t]*#)[^\n]*\\\r\n", re.MULTILINE)
_HEREDOC: Final = lazy_pattern(r"<<-?[ \t]*([\"']?)(\w+)\1")
#: A line that begins with a redirection or a pipe, below the end of a command.
_GOES_ON: Final = lazy_pattern(r"[ \t]*\n[ \t]+([0-9]?>>?|&>|\|)")
#: Dashes and quotes that word processors, chats and web pages put in the place of the plain ones.
_TYPESET: Final = lazy_pattern(r"[\u2010-\u2015\u2212]+-*(?=[A-Za-z])|[\u2018\u2019\u201c\u201d]")
#: Spaces that pages and word processors put in the place of the plain one (category Zs): they end
#: no word.
_TYPESET_SPACE: Final = lazy_pattern(r"[\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000]+")
#: Names of options, of several words; few values behind a dash look so.
_NAMES: Final = lazy_pattern(r"[a-z]+(?:[_-][a-z]+)+=?.*")
_TABLES: Final = torch(
    "distributed/run.py:406; DeepSpeed 0.19.8 launcher/runner.py:44; accelerate 1.15.0 launch.py"
)
_PORT_SOURCE: Final = derived("TCP ports have sixteen bits, and those below 1024 are for root")


@launcher_calls.rule("LNCH025", ERROR, "launcher", _TABLES)
def options_are_known(call: LauncherCall) -> Violations:
    """Every option before the script is one that the launcher has.
    Prevents: error: unrecognized arguments.
    Fix: correct the name, or put a script's option after the script"""
    program = call.launch.program
    script = program.raw if program else "the script"
    for option in call.options.unknown:
        # `--$NAME`, not `--nam=$VALUE`
        has_unknown_name = option.written.value is None and "=" not in option.written.prefix
        if has_unknown_name or not option.name.startswith("-"):
            continue
        owner = next((name for name in NODES if option.name in TABLES[name].options), None)
        near = _near_option(call.program, option.name)
        if owner and not near:
            near = _same_option(call.program, owner, option.name)
        message = f"{call.program} has no option {option.name}"
        message += f", which is {owner}'s" if owner else ""
        hint = f"if it is the script's, put it after {script}"
        if near:
            hint = did_you_mean(near, (near,) if call.has(near) else ())
        # Another release may have an option that nothing is near; and behind a word that isn't
        # known, which may be the script, only a slip is certain, and what is before more of the
        # launcher's own options.
        is_slip_of_own = bool(near and is_slip(option.name, near))
        is_certain = not call.opaque or is_slip_of_own or _is_before_options(call, option)
        severity = ERROR if (near or owner) and is_certain else NOTE
        yield Violation(call.shell.locate(option.written), message, hint, severity=severity)


def _is_before_options(call: LauncherCall, option: Option) -> bool:
    """Whether options of the launcher's own, and a program that is known, follow another option."""
    program = call.launch.program
    if program is None or not (program.path or "").endswith(".py"):
        return False
    return any(
        own.known and option.written.offset < own.written.offset < program.offset
        for own in call.options.entries
    )


def _near_option(launcher: str, name: str) -> str | None:
    """The option of a launcher that is spelt like another name; None without one."""
    options = (option for option in TABLES[launcher].options if option.startswith("--"))
    by_stem = {option.lstrip("-").replace("_", "-"): option for option in options}
    stem = name.partition("=")[0].lstrip("-").replace("_", "-").lower()
    return by_stem.get(stem if stem in by_stem else closest(stem, by_stem) or "")


def _same_option(launcher: str, other: str, name: str) -> str | None:
    """The option of a launcher that means what an option of another launcher does."""
    option = TABLES[other].options[name].name
    for by_launcher in (PORTS, NODES, PER_NODE):
        if by_launcher.get(other) == option:
            return by_launcher.get(launcher)
    return None


@launcher_calls.rule(
    "LNCH036",
    WARNING,
    "launcher",
    derived("argparse.REMAINDER: the words after it are the script's"),
)
def options_stand_before_the_script(call: LauncherCall) -> Violations:
    """A launcher's own options are before the script; what follows it goes to the script.
    Prevents: One process; or error: unrecognized arguments, from the script. A note where its text
    isn't there.
    Fix: put options before the script
    """
    script, text = call.launch.program, program_text(call.launch)
    if script is None or not call.is_innermost:
        return
    for word in call.launch.arguments:
        written = word.prefix.partition("=")[0]
        name = written.lstrip("-").replace("-", "_") if written.startswith("--") else ""
        if name in _MISPLACED[call.program] and (text is None or name not in text):
            message = (
                f"{written} comes after {script.raw}, so it goes to the script and "
                f"not to {call.program}"
            )
            hint = f"put it before {script.raw}"
            # A script whose text isn't there may have such an option too.
            severity = NOTE if text is None else WARNING
            yield Violation(call.shell.locate(word), message, hint, severity=severity)


@launches.rule("LNCH035", ERROR, "launcher", _PORT_SOURCE)
def ports_exist(launch: Launch) -> Violations:
    """A port is a number from 1024 to 65535.
    Prevents: Permission denied, or Address already in use, at the start of the rendezvous. A note
    where the launcher chooses a port by itself.
    Fix: write 1024 to 65535"""
    has_port = False
    for call in launch.calls:
        port = call.text(PORTS[call.program]) if call.program in PORTS else None
        # Another rule reports a variable without its sign.
        if port is not None and not variable_without_sign(call, port.value):
            has_port = True
            yield from _bad_port(call, port)

    variable = launch.environment.get("MASTER_PORT")
    fault = None if variable is None else _fault_of_port(variable.value, "MASTER_PORT")
    if variable is not None and fault is not None:
        message = f"MASTER_PORT={variable.raw} is {fault.text}"
        # A launcher with a port, or one that chooses it, sets it anew.
        is_replaced = has_port or any(call.has("--standalone") for call in launch.calls)
        severity = NOTE if is_replaced else fault.severity
        where = launch.script.locate(variable)
        yield Violation(where, message, "write 1024 to 65535", severity=severity)


def _bad_port(call: Call, port: Argument[str]) -> Violations:
    """A violation where a job can't open the port of a launcher's option."""
    fault = _fault_of_port(port.value, port.option.name)
    if fault is None:
        return
    message, severity = f"{port} is {fault.text}", fault.severity
    rendezvous = own_rendezvous(call)
    if rendezvous and is_whole(port.value.strip()):  # argparse refuses what is no number
        message, severity = f"{message}; with {rendezvous} torchrun takes another", NOTE
    hint = f"write {port.option.name} 29500, from 1024 to 65535"
    yield port.bad_value(message, hint, severity=severity)


class _Fault(NamedTuple):
    """What is wrong with a value; the severity is the rule's where it is None."""

    text: str
    severity: Severity | None


def _fault_of_port(text: str | None, name: str) -> _Fault | None:
    """What is wrong with a port, and how severe; None where a job may open it.

    Port 0 asks the system for a free one.
    """
    port = read_whole(text.strip(), 5) if text else None
    number = -1 if port is None else port
    if text is None or number == 0 or _PRIVILEGED <= number <= _MOST_PORT:
        return None
    if 0 < number < _PRIVILEGED:
        return _Fault("below 1024: only root opens it, or a container", WARNING)
    return _Fault("not a port that a job can open", note_if_to_fill(text, name))


@launcher_calls.rule(
    "LNCH039", WARNING, "silent", derived("argparse keeps the last value of an option")
)
def options_are_given_once(call: LauncherCall) -> Violations:
    """An option of a launcher is given once.
    Prevents: Another number of processes than the first option says.
    Fix: keep one"""
    last_text: dict[str, str] = {}
    for option in call.options.entries:
        if option.text is None or not option.known:
            continue
        before = last_text.get(option.name, option.text)
        last_text[option.name] = option.text
        if before != option.text:
            message = (
                f"{call.program} {option.name}={option.text} replaces "
                f"{option.name}={before} before it"
            )
            yield Violation(call.shell.locate(option.written), message, "keep one of the two")


@accelerate_calls.rule(
    "LNCH037", ERROR, "silent", accelerate("utils/launch.py:217: num_processes // num_machines")
)
def processes_are_those_of_all_machines(call: LauncherCall) -> Violations:
    """accelerate's --num_processes counts those of all machines.
    Prevents: Unused GPUs on every machine.
    Fix: write machines × GPUs per machine"""
    processes, machines = call.integer("--num_processes"), call.nodes
    gpus = world_of(call.submission).gpus_per_node
    if not gpus or processes is None or machines is None or machines < 2:
        return
    if processes.value == gpus:
        start = f"{gpus // machines} start on each, which has {gpus} GPUs"
        message = f"accelerate --num_processes {gpus} is for all {machines} machines: {start}"
        yield processes.bad_value(message, f"write --num_processes {machines * gpus}")


@accelerate_calls.rule(
    "LNCH051", ERROR, "silent", accelerate("utils/launch.py:217: num_processes // num_machines")
)
def processes_divide_among_machines(call: LauncherCall) -> Violations:
    """accelerate's --num_processes is a multiple of the machines.
    Prevents: Fewer processes than asked for, so another batch; GPUs that are not used.
    Fix: use a multiple of --num_machines"""
    processes, machines = call.integer("--num_processes"), call.nodes
    if processes is None or machines is None or machines < 1 or processes.value < 1:
        return
    each, rest = divmod(processes.value, machines)
    if rest:
        start = f"{each} each: {each * machines} start"
        message = (
            f"accelerate --num_processes {processes.value} over {machines} machines is {start}"
        )
        hint = f"write --num_processes {max(each, 1) * machines} or {(each + 1) * machines}"
        yield processes.bad_value(message, hint)


@launcher_calls.rule(
    "LNCH040", ERROR, "launcher", derived("bash(1): a blank ends the word, so the value is empty")
)
def values_follow_their_option(call: LauncherCall) -> Violations:
    """The value of an option follows it: the next word, or what is behind the equals sign, without
    a blank.
    Prevents: expected one argument; an empty value, and the value taken for the script: can't open
    file 'hostfile'.
    Fix: write the value; remove the blank
    """
    words = [word for word in call.command.words if word.raw]
    following = {id(word): after for word, after in pairwise(words)}
    for option in call.options.entries:
        written, after = option.written, following.get(id(option.written))
        if after is None:
            continue

        needs_value = option.known and TABLES[call.program].options[option.name].values
        if needs_value and not option.values:
            message = f"{call.program} {written.raw} has no value: {after.raw} follows it"
            severity = NOTE if call.launch.is_left_empty(written) else None
            hint = f"write a value after {written.raw}"
            yield Violation(call.shell.locate(written), message, hint, severity=severity)

        is_empty = written.raw.endswith("=") and all(word.value == "" for word in option.values)
        if is_empty and not written.variables and not after.raw.startswith(("-", '"', "'")):
            message = (
                f"{call.program} {written.raw} has no value, and {after.raw} is taken for "
                "the script"
            )
            hint = f"write {written.raw}{after.raw}"
            yield Violation(call.shell.locate(written), message, hint)


def _carriage_returns(script: LaunchScript) -> Violations:
    """Ends of lines as on DOS, of a script that starts a program: of all lines at the first that
    isn't a comment, else behind the first backslash of a command.
    """
    content = script.shell.text.content
    if "\r\n" not in content or not script.launches or script.shell.directives:
        return
    hint = "convert the file: dos2unix, or sed -i 's/\\r$//'"
    ended = _COMMAND_RETURN.search(content)
    if ended is not None and content.count("\r\n") == content.count("\n"):
        message = (
            "every line ends as on DOS: bash takes the carriage return for a part of the last word"
        )
        yield Violation(script.shell.locate(ended.end() - 2), message, hint)
    elif behind := _BACKSLASH_RETURN.search(content):
        message = (
            "a carriage return follows the backslash, as lines end on DOS: the command ends there"
        )
        yield Violation(script.shell.locate(behind.end() - 2), message, hint)


def _cut_off(script: LaunchScript, lines_of_callers: Container[int | None]) -> Violations:
    """Lines that were meant for the command above them, and are run as commands of their own.

    At `lines_of_callers` begin launches that the scripts have which call this one.
    """
    shell = script.shell
    launches = {launch.calls[0].command.index for launch in script.launches}
    if lines_of_callers:
        launches |= {
            command.index
            for command in shell.commands
            if shell.locate(command).line in lines_of_callers
        }
    for cut_off in lines_cut_off(shell, launches):
        if cut_off.offset > len(shell.text.content):
            continue  # of a file that it calls, which says it itself
        effect = "only sets a variable" if cut_off.sets else "is run as a command of its own"
        message = f"the command ends above this line, so {cut_off.name} {effect}"
        hint = "end every line but the last in a backslash, and move comments out of the command"
        # Below an empty line it may have been put aside.
        severity = WARNING if cut_off.is_apart else None
        yield Violation(shell.locate(cut_off.offset), message, hint, severity=severity)


@submissions.rule(
    "LNCH041",
    ERROR,
    "launcher",
    derived("bash(1), QUOTING: a backslash quotes the character after it"),
    reads=("launch script",),
)
def lines_go_on_after_a_backslash(submission: Submission) -> Violations:
    """Each line of a command but the last ends in a backslash: no blank follows it, and no comment
    is in between.
    Prevents: --nproc-per-node: command not found; or a lone backslash among the arguments. A
    warning in quotes that start no program, and where only a redirection is lost.
    Fix: remove the blanks, or the comment
    """
    lines_of_callers = _lines_of_callers(submission)
    for script in submission.scripts:
        if script.shell.unterminated is not None:
            continue
        # Where lines end as on DOS, that is why commands end.
        cut_off = [*_carriage_returns(script)] or [
            *_cut_off(script, lines_of_callers.get(script.path, frozenset()))
        ]
        yield from cut_off
        yield from _blanks_after_backslashes(script)
        yield from _comments_within(script)
        if not cut_off:
            yield from _last_arguments(script)


def _lines_of_callers(submission: Submission) -> dict[str, set[int | None]]:
    """The lines at which launches begin in scripts that others call, by path: the callers have
    them.
    """
    lines = defaultdict[str, set[int | None]](set)
    for launch in submission.launches:
        where = launch.script.locate(launch.calls[0].command)
        if where.path != launch.script.text.path:
            lines[where.path].add(where.line)
    return lines


class _Span(NamedTuple):
    """Where a text begins in its script, and where it ends."""

    begin: int
    end: int


def _spans_of_texts(shell: ShellScript) -> list[_Span]:
    """Where words, and values of assignments, begin and end."""
    words = (word for command in shell.commands for word in command.words)
    of_words = [_Span(word.offset, word.offset + len(word.raw)) for word in words]
    return [*of_words, *_spans_of_values(shell.assignments)]


def _spans_of_values(assignments: Iterable[Assignment]) -> list[_Span]:
    return [
        _Span(assignment.value_offset, assignment.value_offset + len(assignment.raw))
        for assignment in assignments
    ]


def _starts_programs(script: LaunchScript, span: _Span) -> bool:
    """Return whether a text has words of a launch line in it."""
    words = (
        word
        for launch in script.launches
        for word in (*(call.word for call in launch.calls), launch.program, *launch.arguments)
        if word is not None
    )
    return any(span.begin <= word.offset < span.end for word in words)


def _is_printed(shell: ShellScript, span: _Span) -> bool:
    """Return whether a text is only shown."""
    return any(
        span.begin == word.offset
        for command in shell.commands
        if command.words and command.words[0].value in ("echo", "printf")
        for word in command.words
    )


def _broken_lines(content: str, *patterns: re.Pattern[str]) -> Iterator[re.Match[str]]:
    """The lines of a text that end in a blank behind a backslash, and the word below each."""
    if _BLANK_AT_END.search(content):
        for pattern in patterns:
            yield from pattern.finditer(content)


def _blanks_after_backslashes(script: LaunchScript) -> Violations:
    """Backslashes that blanks follow, so that the next line, with an option, is cut off.

    In the text of a command that starts a program it may have any word.
    """
    shell, spans = script.shell, list[_Span]()
    for match in _broken_lines(shell.text.content, _BROKEN_LINE, _BROKEN_TEXT):
        spans = spans or _spans_of_texts(shell)  # most scripts have no such line, and need none
        at, (backslash_and_blanks, following) = match.start(1), match.groups()
        if shell.heredoc_at(at) is not None:
            continue  # it is data

        inside = next(
            (span for span in spans if span.begin < at < span.end - len(backslash_and_blanks)), None
        )
        # What a text is for that starts no program isn't known.
        is_command = inside is not None and _starts_programs(script, inside)
        if not is_command and not following.startswith("-"):
            continue
        message = "a blank follows the backslash: the line ends there, and "
        message += f"{following} is not an argument"
        if inside is not None:
            if _is_printed(shell, inside):
                continue
            message = "a blank follows the backslash: it stays in the text, as a word"
        severity = WARNING if inside is not None and not is_command else ERROR
        hint = "remove the blanks at the end of the line"
        yield Violation(shell.locate(at), message, hint, severity=severity)


def _comments_within(script: LaunchScript) -> Violations:
    """Lines that begin with # in the text of a command that starts a program, but in no array."""
    shell, spans = script.shell, list[_Span]()
    for match in _COMMENTED.finditer(shell.text.content):
        at = match.start(1)
        if not spans:
            arrays = (array for array in shell.assignments if array.words is not None)
            of_arrays = set(_spans_of_values(arrays))
            spans = [span for span in _spans_of_texts(shell) if span not in of_arrays]
        inside = next((span for span in spans if span.begin < at < span.end), None)
        if inside and _starts_programs(script, inside):
            effect = "which makes a comment of the rest of the command, or an argument of itself"
            message = f"the text has a # here, {effect}"
            yield Violation(shell.locate(at), message, "move the line out of the text")


def _last_arguments(script: LaunchScript) -> Violations:
    """Launch lines whose last word is a blank behind a backslash, or that go on without one."""
    shell = script.shell
    reported = {match.start(1) for match in _broken_lines(shell.text.content, _BROKEN_LINE)}
    for launch in script.launches:
        last = (launch.program, *launch.arguments)[-1]
        if last is None:
            continue

        end = last.offset + len(last.raw)
        ends_in_blank = last.raw.endswith("\\ ") and last.raw.count("\\ ") == 1
        redirection_below = _GOES_ON.match(shell.text.content, end)
        if ends_in_blank and end - 2 not in reported:
            message = "a blank follows the backslash: the command ends here, and the blank "
            message += "is its last argument"
            yield Violation(shell.locate(last), message, "remove the blanks at the end of the line")
        elif redirection_below:
            sign = redirection_below[1]
            message = f"the command ends above this line, so {sign} is not part of it"
            hint = "end every line but the last in a backslash"
            where = shell.locate(redirection_below.start(1))
            # The program gets all its options; its log alone is lost.
            yield Violation(where, message, hint, severity=WARNING)


@launcher_calls.rule("LNCH044", ERROR, "launcher", _TABLES)
def launchers_start_a_program(call: LauncherCall) -> Violations:
    """A launcher is given the program to start.
    Prevents: error: the following arguments are required: training_script
    Fix: name the program after the launcher's options"""
    launch, options = call.launch, call.options
    is_given_one = launch.program is not None or bool(launch.arguments)
    if not call.is_innermost or is_given_one or call.options.opaque:
        return
    needs_none = call.has("--help", "--module", "--no-python", "--no_python", "--version")
    if options.unknown or needs_none or not options.entries:
        return
    message = f"{call.program} is given options and no program: the command ends here"
    # Options of an array are written elsewhere: the command ends on its own line.
    last = options.entries[-1].written
    is_after = last.offset > call.word.offset
    where = call.shell.locate(last) if is_after else call.where
    yield Violation(
        where, message, "end every line but the last in a backslash, and name the program"
    )


@scripts.rule(
    "LNCH045",
    ERROR,
    "launcher",
    derived("bash(1), QUOTING: a text lasts until the quote that closes it"),
)
def quotes_are_closed(script: LaunchScript) -> Violations:
    """Each quote, bracket, here-document, loop and condition of a script is closed, once.
    Prevents: `unexpected EOF while looking for matching quote`, or `unexpected end of file`: bash
    runs nothing of what follows.
    Fix: close it"""
    shell, quote_at = script.shell, script.shell.unterminated
    if _ZSH.match(shell.text.content):
        return  # which has other forms of loops and conditions
    is_heredoc = quote_at is not None and shell.text.content.startswith("<<", quote_at)
    if shell.fault is not None and (quote_at is None or is_heredoc):
        # A here-document that nothing ends may have taken the word into its text.
        lacks = shell.fault.lacks if not shell.fault.word else ""
        is_taken = quote_at is not None and _has_line_of(lacks, shell.text.content, quote_at)
        if not (lacks and is_taken):
            yield broken_blocks(shell, shell.fault)
    if quote_at is not None and is_heredoc:
        yield from _unended_heredoc(shell, quote_at)
    elif quote_at is not None:
        message = (
            f"{line_from(shell, quote_at)} has a quote or bracket that nothing closes, or that "
            "closes one which is missing above"
        )
        hint = "close every quote; bash -n FILE says whether they all are"
        yield Violation(shell.locate(quote_at), message, hint)


def _has_line_of(word: str, content: str, begin: int) -> bool:
    """Return whether a line behind `begin` begins with a word."""
    return (
        re.compile(rf"^[ \t]*{re.escape(word)}(?![\w-])", re.MULTILINE).search(content, begin)
        is not None
    )


def _unended_heredoc(shell: ShellScript, at: int) -> Violations:
    """The line that was meant to end a here-document: it has the word, and something else."""
    content = shell.text.content
    begin = _HEREDOC.match(content, at)
    if begin is None:
        return
    word = begin[2]
    meant = re.compile(rf"^[ \t]*{word}(?![\w-])[^\n]*", re.MULTILINE).search(content, begin.end())
    if meant is not None:
        message = (
            f"{show(meant[0])} doesn't end the here-document of line {shell.locate(at).line}: what "
            "follows is its text, and no command"
        )
        hint = f"write {word} alone on its line, and what follows behind {begin[0]}"
        yield Violation(shell.locate(meant.start()), message, hint)


@launches.rule(
    "LNCH049",
    WARNING,
    "launcher",
    torch("distributed/run.py:955, config_from_args"),
)
def modules_are_started_as_such(launch: Launch) -> Violations:
    """A module is started with -m; without it, its name is that of a file.
    Prevents: can't open file 'trl.scripts.grpo': no such file.
    Fix: write -m before it
    """
    program, last = launch.program, launch.calls[-1]
    name = program.value if program is not None else None
    if program is None or name is None or last.program not in _RUN_FILES:
        return
    if not is_module_name(name) or launch.starts_module or program_of(launch) is not None:
        return
    if last.has("--no-python", "--no_python"):
        return

    option = "--module" if last.program == "deepspeed" else "-m"
    message = f"{name} is started as a file of that name, which isn't here, and not as a module"
    yield Violation(launch.script.locate(program), message, f"write {option} {name}")


@launcher_calls.rule(
    "LNCH053", ERROR, "launcher", torch("distributed/run.py:944, config_from_args")
)
def launchers_run_python_themselves(call: LauncherCall) -> Violations:
    """The program behind a launcher's options is a Python file: the launcher starts Python for it.
    Prevents: python: can't open file 'python': [Errno 2] No such file or directory
    Fix: leave python out, or give the launcher --no-python
    """
    program, own = call.launch.program, ("--no-python", "--no_python", "--module")
    if program is None or program.value is None or not call.is_innermost or call.opaque:
        return
    if call.has(*own) or "PET_NO_PYTHON" in call.launch.environment:
        return
    name = program_name(program)
    is_known = name in TABLES or name in SHELLS
    is_front_end = of_command((program, *call.launch.arguments)) is not None
    if name in LAUNCHERS:
        return  # LNCH020 judges launchers that start one another
    if not (is_known or is_front_end or _is_own_command(program.value, call.launch)):
        return
    option = "--no-python" if call.program == "torchrun" else "--no_python"
    message = f"{call.program} starts Python itself, on a file that is called {program.value}"
    hint = f"give {call.program} {option}"
    if name == "python":
        hint = f"leave {program.value} out, or {hint}"
    elif is_front_end:  # most of them call a launcher
        hint = f"leave {call.program} out; or, if {name} starts no ranks by itself, {hint}"
    yield Violation(call.launch.script.locate(program), message, hint)


def _is_own_command(name: str, launch: Launch) -> bool:
    """Whether a name is a command of the repository's own package, and no file is called so."""
    path = launch.script.text.path
    is_command = "/" not in name and file_of_command(name, path) is not None
    return is_command and not any(is_there(folder / name) for folder in folders_above(path))


def _typeset_space(raw: str) -> re.Match[str] | None:
    """A space of another kind that was meant to end a word: at an end of it, or beside an option.

    In quotes, and in a value, it may be meant.
    """
    space = _TYPESET_SPACE.search(raw)
    if space is None or not {"'", '"'}.isdisjoint(raw[: space.start()]):
        return None
    parts = _TYPESET_SPACE.split(raw)
    return space if any(not part or part.startswith("-") for part in parts) else None


@launches.rule(
    "LNCH046",
    ERROR,
    "launcher",
    derived("bash(1) and argparse know the ASCII hyphen and quotes alone"),
)
def dashes_and_quotes_are_plain(launch: Launch) -> Violations:
    """Options begin with the hyphen of the keyboard, texts are in plain quotes, and words are apart
    by plain spaces.
    Prevents: unrecognized arguments: —lr, as copied from a web page. A note where it may be a
    value.
    Fix: write --, plain quotes and spaces
    """
    for before, word in pairwise(launch.calls[-1].command.words):
        if (space := _typeset_space(word.raw)) is not None:
            name = unicodedata.name(space[0][0]).lower()
            message = f"{show(word.raw)} has a {name}, which doesn't end a word as a plain space"
            where = launch.script.locate(word)
            yield Violation(where, message, "write a plain space in its place")
            continue
        typeset = _TYPESET.match(word.raw)
        if typeset is None:
            continue

        first, rest = word.raw[0], word.raw[typeset.end() :]
        is_dash = unicodedata.category(first) in ("Pd", "Sm")
        plain = "-" if is_dash else "a plain quote"
        message = f"{show(word.raw)} begins with the character {unicodedata.name(first).lower()}, "
        message += f"not with {plain}"

        # Behind an option it may be a value, but for the name of another option.
        option = f"--{rest.partition('=')[0]}"
        is_option = _NAMES.fullmatch(rest) is not None or any(
            option in TABLES[call.program].options
            for call in launch.calls
            if call.program in TABLES
        )
        may_be_value = before.raw.startswith("-") and "=" not in before.raw and not is_option
        severity = NOTE if may_be_value or not is_dash else ERROR

        quotes = dict.fromkeys(map(ord, "\u2018\u2019\u201c\u201d"), '"')
        hint = f"write {'--' if is_dash else chr(34)}{rest.translate(quotes)}"
        yield Violation(launch.script.locate(word), message, hint, severity=severity)
