"""Rules as data, as text, and as Markdown: a page for each subject, a heading, and so an anchor, for each rule."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Final

from ..rule import Rule
from .known_rules import checks

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
    "CMP": "compilation",
    "CPR": "compression",
    "DATA": "data",
    "ELAS": "elasticity",
    "ENG": "the installed DeepSpeed",
    "ENV": "environment",
    "FILE": "files",
    "HF": "Hugging Face",
    "HOST": "hostfiles",
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
_WHEN: Final = {
    "parse": "when the config is read",
    "init": "when the engine starts",
    "training": "during training",
    "launcher": "when the launcher starts",
    "submit": "on submission",
}


def rule_document(rule: Rule) -> dict[str, object]:
    """The rule's fields, without those that are empty."""
    fields = {
        "id": rule.id,
        "severity": rule.severity.value,
        "checks": checks(rule),
        **{name: getattr(rule, name) for name in ("title", "source", "when", "versions")},
        "reads": list(rule.reads),
        **{name: getattr(rule, name) for name in ("prevents", "fix")},
    }
    return {name: value for name, value in fields.items() if value}


def rule_text(rule: Rule) -> tuple[object, ...]:
    """One rule as text."""
    from rich.text import Text  # here, to save start-up time

    from .colours import BOLD
    from .tables import Lines

    fields = {
        **{name: getattr(rule, name) for name in ("prevents", "fix", "source", "when")},
        "reads": ", ".join(rule.reads),
        "versions": rule.versions and f"DeepSpeed {rule.versions}",
    }
    head = f"{rule.id} ({rule.severity.value}, checks {checks(rule)})"
    return Text(head, BOLD), rule.title, "", Lines((name, text) for name, text in fields.items() if text)


def rules_table(rules: Iterable[Rule]) -> object:
    """One row per rule: what it checks, and what it requires."""
    from .tables import Table, whole, words  # here, to save start-up time

    table = Table(whole("id"), whole("severity"), whole("checks", drop=1), words("requires", least=40))
    for rule in rules:
        table.add_row(rule.id, rule.severity.value, checks(rule), rule.title)
    return table


def rules_page(rules: Iterable[Rule]) -> str:
    """Every rule on one page, by subject."""
    return "\n".join(page for _, page in subject_pages(rules, {}))


def subject_pages(rules: Iterable[Rule], examples: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """A page for each subject, by the subject's prefix. `examples` has the output for a bad file, by rule id."""
    for subject, group in groupby(rules, key=subject_of):
        lines = [f"# {heading(subject)}"]
        for rule in group:
            lines += ["", *_entry(rule, examples.get(rule.id))]
        yield subject, "\n".join(lines) + "\n"


def subject_of(rule: Rule) -> str:
    """The prefix of a rule's id."""
    return rule.id.rstrip("0123456789")


def heading(subject: str) -> str:
    """A subject's prefix with its name."""
    return f"{subject}: {SUBJECTS[subject]}" if subject in SUBJECTS else subject


def _entry(rule: Rule, example: str | None) -> Iterator[str]:
    yield from (f"## {rule.id}", "", _markdown(rule.title), "")
    facts = [f"**{rule.severity.value}**", f"checks {checks(rule)}"]
    if rule.reads:
        facts[-1] += f" ({', '.join(rule.reads)})"
    if rule.when:
        facts.append(f"fails {_WHEN[rule.when]}" if rule.when != "silent" else "fails silently")
    if rule.versions:
        facts.append(f"DeepSpeed {_markdown(rule.versions)}")
    yield f"- {'; '.join(facts)}"
    for name, text in (("Prevents", rule.prevents), ("Fix", rule.fix), ("Source", rule.source)):
        if text:
            yield f"- {name}: {_markdown(text)}"
    if example:
        longest = max((len(run) for run in example.split("\n") if set(run) == {"`"}), default=0)
        fence = "`" * max(3, longest + 1)
        yield from ("", f"{fence}text", *example.rstrip("\n").split("\n"), fence)


def _markdown(text: str) -> str:
    """`text` with Markdown's special characters escaped, except for code in backticks."""
    parts = " ".join(text.split()).split("`")
    closed = len(parts) % 2 == 1
    shown = (part if closed and i % 2 else _escaped(part) for i, part in enumerate(parts))
    return ("`" if closed else "\\`").join(shown)


def _escaped(text: str) -> str:
    text = re.sub(r"[\\*_\[\]|#]", r"\\\g<0>", text)
    return text.replace("<", "&lt;").replace(">", "&gt;")
