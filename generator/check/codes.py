"""The rules without a check of their own: on files as text, the engine, and dsgen itself.

Readers and commands report these findings where they meet what is wrong. Ids are never reused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Final

from ..faults import Fault
from ..findings import ERROR, NOTE, WARNING, Finding, Location
from ..rule import Rule, rule_of_reader

_text = partial(rule_of_reader, checks="files", source="the documented forms of the files")
_engine = partial(rule_of_reader, checks="engine", source="the installed DeepSpeed's own parser")
_silent = partial(_text, when="silent")
_note = partial(_text, severity=NOTE, when="silent")
_warning = partial(_text, severity=WARNING, when="silent")
_fault = partial(
    rule_of_reader, checks="files", source="dsgen itself", severity=WARNING, when="silent"
)
_command = partial(rule_of_reader, checks="files", source="dsgen's own command line", when="silent")
_engine_note = partial(_engine, severity=NOTE, when="silent")

UNREADABLE: Final = _text("""FILE001: Every file is readable UTF-8 text.
    Prevents: The program that reads the file stops, or reads something else than was meant.
    Fix: save the file as plain UTF-8 text, and give its path""")
SYNTAX: Final = _text("""FILE002: A YAML document is well-formed.
    Prevents: The program that reads the YAML stops before anything is checked.
    Fix: correct the YAML at the place named""")
DUPLICATE_KEY: Final = _warning("""FILE003: A mapping of a YAML document has each key once.
    Prevents: No error from most readers: the last of the two values counts, silently.
    Fix: keep one of the two keys""")
UNKNOWN_KIND: Final = _silent("""FILE004: A path names a kind of document that dsgen reads, or a
    folder that has one.
    Prevents: No error: a file that nobody checks looks as if it had passed.
    Fix: name the job's own files, or the folder that has them
    """)
TOO_MUCH: Final = _silent("""FILE005: A submission stays within the limits of size, nesting and
    number of files.
    Prevents: No error: files past the limits would not be checked.
    Fix: name the folder of one job, without its data
    """)
UNKNOWN_NAME: Final = _text("""FILE006: The cluster, model and job of the context are known.
    Prevents: The checks that need the cluster, model or job would be left out.
    Fix: use a name that `dsgen catalog` lists""")
USELESS_IGNORE: Final = _note("""FILE007: A comment that ignores a rule is where the rule reports a
    finding.
    Prevents: No error: the comment hides a finding that may come later for another reason.
    Fix: remove the comment
    """)
UNKNOWN_IGNORE: Final = _warning("""FILE008: A comment that ignores findings names rules that dsgen
    has.
    Prevents: No error: the comment ignores nothing.
    Fix: use an id that `dsgen rules` lists
    """)
CONFLICT: Final = _text("""FILE009: No file has a merge conflict left in it.
    Prevents: The program that reads the file stops at git's marker, or takes both sides.
    Fix: keep one side, and remove git's markers
    """)
ENGINE_REFUSES: Final = _engine("""ENG001: The installed DeepSpeed's own parser accepts every
    DeepSpeed config (with --engine).
    Prevents: DeepSpeed stops at start with the error in the message.
    Fix: change what the message asks for; `dsgen rules` lists what dsgen itself checks
    """)
ENGINE_VERSION: Final = _engine_note("""ENG002: The installed DeepSpeed is the version that the
    files are checked for (with --engine).
    Prevents: No error: the job's own DeepSpeed may accept or refuse other keys than the parser that
    was asked.
    Fix: set --deepspeed-version to the installed version, or install the version that the job runs
    """)

RULE_FAILED: Final = _fault("""DSG001: Every rule of dsgen judges every file.
    Prevents: No error: what the rule would have found in the file isn't reported. All other rules
    have judged it.
    Fix: report the fault to the project; until it is mended, `--ignore DSG001` hides it
    """)
READER_FAILED: Final = _fault("""DSG002: Every reader of dsgen reads every file.
    Prevents: No error: the file isn't checked, or a part of it isn't. All others are.
    Fix: report the fault to the project; until it is mended, `--ignore DSG002` hides it""")

WRONG_COMMAND: Final = _command("""CLI001: The command line is one that dsgen reads.
    Prevents: dsgen does nothing, and ends with status 2.
    Fix: change what the message names; `dsgen COMMAND --help` lists arguments and options""")
IN_THE_WAY: Final = _command("""CLI002: No file with other contents is where one is to be written.
    Prevents: dsgen writes nothing, and ends with status 4.
    Fix: look at the changes with --diff, then use --force, or -o for another folder""")
CANNOT_DO: Final = _command("""CLI003: What the command has to write, read or call can be.
    Prevents: dsgen ends with status 1, and nothing is submitted.
    Fix: do what the hint says""")
#: The rules on the command itself, by id: with `--format json` its errors are findings too.
REFUSALS: Final = {rule.id: rule for rule in (WRONG_COMMAND, IN_THE_WAY, CANNOT_DO)}

#: The rules above, by the ids that the reader of job specs has for the same.
_FROM_SPEC: Final[Mapping[str, Rule]] = {
    "SPEC001": UNREADABLE,
    "SPEC002": SYNTAX,
    "SPEC003": DUPLICATE_KEY,
    "SPEC004": SYNTAX,
    "SPEC005": TOO_MUCH,
    "SPEC011": UNKNOWN_NAME,
    "SPEC013": UNKNOWN_NAME,
    "SPEC014": UNREADABLE,
}


def from_spec(finding: Finding) -> Finding:
    """Return a finding of the reader of job specs as one on a document of any kind.

    Other documents are read by the same functions, which name the ids for specs.
    """
    rule = _FROM_SPEC.get(finding.rule)
    if rule is None:
        return finding
    # A reader of specs refuses more than others do.
    severity = rule.severity if finding.severity is ERROR else finding.severity
    return replace(finding, rule=rule.id, severity=severity)


MOST_FINDINGS: Final = 100  #: of one rule in a file: nobody reads more of the same


def bounded(findings: Iterable[Finding]) -> Iterator[Finding]:
    """Return at most the first `MOST_FINDINGS` findings of each rule and severity in a file.

    A note at the last of them says that there may be more.
    """
    counts: Counter[tuple[str, str, str]] = Counter()
    for finding in findings:
        key = (finding.rule, finding.where.path, finding.severity.value)
        counts[key] += 1
        if counts[key] <= MOST_FINDINGS:
            yield finding
        if counts[key] == MOST_FINDINGS:
            message = (
                f"{finding.rule} is reported {MOST_FINDINGS} times, here for the last "
                "time; there may be more"
            )
            yield TOO_MUCH.at(finding.where, message, "mend these, and check again", severity=NOTE)


#: The place of a fault that no file is known for.
ALL_FILES: Final = "<dsgen>"


def of_fault(fault: Fault) -> Finding:
    """Return a fault of dsgen as a finding, without the traceback and without the file's text."""
    rule = RULE_FAILED if fault.is_rule else READER_FAILED
    where = Location(path=fault.path or ALL_FILES)
    return rule.at(where, fault.message, "report it; --debug shows the traceback")
