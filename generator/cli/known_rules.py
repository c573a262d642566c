"""All rules, the choice of `--select` and `--ignore`, and rules as text, pages and JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from itertools import groupby
from typing import Final, NamedTuple

from ..faults import FAULTS
from ..findings import Finding
from ..job import codes
from ..resources import read_text
from ..rule import Rule, rules_in
from ..submission.record import loaded
from .printing import BOLD, unknown
from .tables import Lines, Part, Table, Text, whole, words

#: Rules that are reported whatever is selected, unless they are ignored by name: a file that could
#: not be read was not checked at all.
_UNREAD: Final = frozenset(
    {
        "FILE001",
        "FILE002",
        "FILE004",
        "FILE005",
        "FILE006",
        "SPEC001",
        "SPEC002",
        "SPEC004",
        "SPEC005",
        "SPEC014",
        "PARSE016",
        *FAULTS,
    }
)
_WHEN: Final = {
    "parse": "when the config is read",
    "init": "when the engine starts",
    "training": "during training",
    "launcher": "when the launcher starts",
    "submit": "on submission",
    "silent": "silently",
}
#: How a rule's text of what it prevents begins, where nothing stops the run.
_NO_ERROR: Final = "No error: "


@lru_cache(maxsize=1)
def known_rules() -> tuple[Rule, ...]:
    """Rules by id; one that checks jobs and files alike is one entry."""
    from ..check import codes as of_files  # here, to save start-up time
    from ..check.rules.run import all_file_rules
    from ..facts import measurement

    joined = _joined((*_planning_rules(), *rules_in(measurement, of_files), *all_file_rules()))
    return tuple(sorted(joined, key=lambda rule: rule.id))


def rules_called(rule_id: str) -> tuple[Rule, ...]:
    """Return the rule of an id, as in `known_rules`; empty for another id.

    `rule_modules.json` says which modules have it, and no others are imported.
    """
    places: Mapping[str, list[str]] = json.loads(read_text(__package__, "rule_modules.json"))
    modules = [module for module, ids in places.items() if rule_id in ids]
    rules = [rule for rule in rules_in(*map(loaded, modules)) if rule.id == rule_id]
    rules.sort(key=lambda rule: rule.checks in ("files", "engine"))
    in_files = (
        replace(rule, checks="files", reads=rule.in_files.reads) for rule in rules if rule.in_files
    )
    return _joined((*rules, *in_files))


def checks(rule: Rule) -> str:
    """What the rule judges: spec, runs, job, layout, fit, files or engine.

    A rule on something else that judges files too has both words.
    """
    return f"{rule.checks}, files" if rule.reads and rule.checks != "files" else rule.checks


def title_of(rule_id: str) -> str:
    """Return what a rule on specs, jobs, layouts or memory requires; nothing for another id."""
    return next((rule.title for rule in _planning_rules() if rule.id == rule_id), "")


class Selection(NamedTuple):
    """Ids and prefixes of ids, such as `SLM` and `SLM004`.

    The longest one that a rule's id begins with decides. Where both lists have it, the rule is
    ignored.
    """

    select: tuple[str, ...] = ()  #: empty: all
    ignore: tuple[str, ...] = ()

    def keeps(self, finding: Finding) -> bool:
        """Return whether the finding is reported."""
        # A rule that is reported by default counts as selected by a prefix of length 0.
        is_default = not self.select or finding.rule in _UNREAD
        selected = max(0 if is_default else -1, _longest(self.select, finding.rule))
        return selected > _longest(self.ignore, finding.rule)


def _longest(prefixes: tuple[str, ...], rule: str) -> int:
    """The length of the longest prefix of a rule's id; -1 without any."""
    return max((len(prefix) for prefix in prefixes if rule.startswith(prefix)), default=-1)


def _planning_rules() -> Iterable[Rule]:
    from ..programs.job_rules import PLANNING_RULES  # here, to save start-up time

    return (*rules_in(codes), *PLANNING_RULES)


def _joined(rules: Iterable[Rule]) -> tuple[Rule, ...]:
    """One rule for each id.

    Rules with the same id check different things. The joined rule has the text of the first, the
    sources and kinds of files of all, and the releases of one that checks files.
    """
    joined: dict[str, Rule] = {}
    for rule in rules:
        first = joined.setdefault(rule.id, rule)
        if first is not rule:
            on_files = first if first.reads else rule
            is_told = rule.source in first.source
            joined[rule.id] = replace(
                first,
                source=first.source if is_told else f"{first.source}; {rule.source}",
                since=on_files.since,
                before=on_files.before,
                reads=tuple(dict.fromkeys((*first.reads, *rule.reads))),
            )
    return tuple(joined.values())


def ids_of(values: Iterable[str]) -> tuple[str, ...]:
    """The ids and prefixes in values, which may have several with commas between them.

    One that no rule's id begins with is refused.
    """
    names = tuple(
        part.strip().upper() for value in values for part in value.split(",") if part.strip()
    )
    known = [rule.id for rule in known_rules()] if names else []
    for name in names:
        if not any(rule.startswith(name) for rule in known):
            subjects = sorted({rule.rstrip("0123456789") for rule in known})
            unknown("rule", name, (*known, *subjects))
    return names


#: The subjects of ids, by prefix.
SUBJECTS: Final[Mapping[str, str]] = {
    "ACC": "accelerate",
    "ACT": "activation checkpointing",
    "AML": "AzureML",
    "ARG": "arguments of the script",
    "ATT": "attention",
    "BATCH": "batch",
    "CAL": "calibration",
    "CKPT": "checkpoints",
    "CLI": "the command line",
    "BRG": "Megatron-Bridge",
    "CMP": "compilation",
    "DATA": "data",
    "DISK": "room on disks",
    "DSG": "faults of dsgen itself",
    "ELAS": "elasticity",
    "ENG": "the installed DeepSpeed",
    "ENV": "environment",
    "FILE": "files",
    "FSDP": "FSDP",
    "HF": "Hugging Face",
    "HOST": "hostfiles",
    "FRONT": "front ends",
    "KUB": "Kubernetes",
    "LNCH": "launchers",
    "LORA": "low-rank adapters",
    "MDS": "Megatron-DeepSpeed",
    "MEM": "memory",
    "MLM": "Megatron-LM",
    "MOE": "mixture of experts",
    "MON": "monitors",
    "NCCL": "NCCL",
    "NODE": "nodes",
    "OPT": "optimizer and scheduler",
    "PARSE": "reading DeepSpeed configs",
    "PIPE": "pipeline parallelism",
    "PREC": "precision",
    "RUN": "measured runs",
    "SEQ": "sequence length",
    "SKY": "SkyPilot",
    "SLM": "Slurm",
    "SP": "sequence parallelism",
    "SPEC": "job specs",
    "SUB": "submissions",
    "TIME": "time limits",
    "TOK": "tokenizers",
    "TP": "tensor parallelism",
    "VER": "versions",
    "ZERO": "ZeRO",
}


def says(rule: Rule, word: str) -> bool:
    """Whether a rule's requirement, or the error that it prevents, has a word in it."""
    return word.lower() in f"{rule.title} {rule.prevents}".lower()


def rule_document(rule: Rule) -> dict[str, object]:
    """The rule's fields, without those that are empty."""
    names = (
        "id",
        "severity",
        "checks",
        "title",
        "source",
        "when",
        "versions",
        "reads",
        "prevents",
        "fix",
    )
    fields: dict[str, object] = {name: getattr(rule, name) for name in names}
    fields |= {"severity": rule.severity.value, "checks": checks(rule), "reads": list(rule.reads)}
    return {name: value for name, value in fields.items() if value}


def rule_text(rule: Rule) -> tuple[Part, ...]:
    """One rule as text."""
    label, consequence = _consequence(rule)
    fields: dict[str, str] = {
        label: consequence,
        "fix": rule.fix,
        "source": rule.source,
        "fails": _WHEN[rule.when] if rule.when else "",
        "reads": ", ".join(rule.reads),
        "versions": rule.versions and f"DeepSpeed {rule.versions}",
    }
    head = f"{rule.id} ({rule.severity.value}, checks {checks(rule)})"
    return (
        Text(head, BOLD),
        rule.title,
        "",
        Lines((name, text) for name, text in fields.items() if text),
    )


def _consequence(rule: Rule) -> tuple[str, str]:
    """What a broken rule leads to, after a word that says whether that is an error."""
    if not rule.prevents.startswith(_NO_ERROR):
        return "prevents", rule.prevents
    text = rule.prevents.removeprefix(_NO_ERROR)
    return "otherwise", text[:1].upper() + text[1:]


def rules_table(rules: Iterable[Rule]) -> Table:
    """One row per rule: what it checks, and what it requires."""
    table = Table(
        whole("id"), whole("severity"), whole("checks", drop=1), words("requires", least=40)
    )
    for rule in rules:
        table.add_row(rule.id, rule.severity.value, checks(rule), rule.title)
    return table


def subject_pages(rules: Iterable[Rule], examples: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """A page for each subject, by the subject's prefix.

    `examples` has the output for a bad file, by rule id.
    """
    for subject, group in groupby(rules, key=subject_of):
        lines = [f"# {heading(subject)}"]
        for rule in group:
            lines += ["", *_entry(rule, examples.get(rule.id))]
        yield subject, "\n".join(lines) + "\n"


def subject_of(rule: Rule) -> str:
    """Return the prefix of a rule's id."""
    return rule.id.rstrip("0123456789")


def heading(subject: str) -> str:
    """Return a subject's prefix with its name."""
    return f"{subject}: {SUBJECTS[subject]}" if subject in SUBJECTS else subject


def _entry(rule: Rule, example: str | None) -> Iterator[str]:
    yield from (f"## {rule.id}", "", in_markdown(rule.title), "")
    facts = [f"**{rule.severity.value}**", f"checks {checks(rule)}"]
    if rule.reads:
        facts[-1] += f" ({', '.join(rule.reads)})"
    if rule.when:
        facts.append(f"fails {_WHEN[rule.when]}")
    if rule.versions:
        facts.append(f"DeepSpeed {in_markdown(rule.versions)}")
    yield f"- {'; '.join(facts)}"
    label, consequence = _consequence(rule)
    for name, text in ((label.title(), consequence), ("Fix", rule.fix), ("Source", rule.source)):
        if text:
            yield f"- {name}: {in_markdown(text)}"
    if example:
        # Longer than any fence within the example.
        fences = (line for line in example.split("\n") if set(line) == {"`"})
        longest = max((len(line) for line in fences), default=0)
        fence = "`" * max(3, longest + 1)
        yield from ("", f"{fence}text", *example.rstrip("\n").split("\n"), fence)


def in_markdown(text: str) -> str:
    """`text` with Markdown's special characters escaped, except for code in backticks."""
    parts = " ".join(text.split()).split("`")
    closed = len(parts) % 2 == 1
    for index, part in enumerate(parts):
        is_code = closed and index % 2 == 1
        if not is_code:
            parts[index] = (
                re.sub(r"[\\*_\[\]|#]", r"\\\g<0>", part).replace("<", "&lt;").replace(">", "&gt;")
            )
    return ("`" if closed else "\\`").join(parts)
