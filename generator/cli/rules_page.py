"""The rules as a Markdown page: grouped by subject, with a table of contents."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from .known_rules import KnownRule

#: What the prefixes of ids stand for.
SUBJECTS: Final[Mapping[str, str]] = {
    "ACC": "accelerate",
    "ACT": "activation checkpointing",
    "AML": "AzureML",
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
    "LNCH": "launchers",
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
    "SLM": "Slurm",
    "SP": "sequence parallelism",
    "SPEC": "job specs",
    "SUB": "submissions",
    "TP": "tensor parallelism",
    "VER": "versions",
    "ZERO": "ZeRO",
}
_KINDS: Final = {
    "parse": "when the config is read",
    "init": "when the engine starts",
    "training": "during training",
    "launcher": "when the launcher starts",
    "submit": "on submission",
    "silent": "never: it goes wrong silently",
}


def rules_page(rules: Iterable[KnownRule], examples: Mapping[str, str] | None = None) -> str:
    """The page. `examples` has what is printed for a bad file, by rule id."""
    groups = [(subject, list(group)) for subject, group in groupby(rules, key=_subject)]
    lines = [
        "# Rules",
        "",
        "What dsgen requires, why, and where that comes from. This page is written by `docs/make_rules_page.py`.",
        "",
        *(f"- [{_heading(subject)}](#{_anchor(subject)}): {len(group)}" for subject, group in groups),
    ]
    for subject, group in groups:
        lines += ["", f'<a id="{_anchor(subject)}"></a>', "", f"## {_heading(subject)}"]
        for rule in group:
            lines += ["", *_entry(rule, (examples or {}).get(rule.id))]
    return "\n".join(lines) + "\n"


def _subject(rule: KnownRule) -> str:
    return rule.id.rstrip("0123456789")


def _heading(subject: str) -> str:
    return f"{subject}: {SUBJECTS[subject]}" if subject in SUBJECTS else subject


def _anchor(subject: str) -> str:
    return f"subject-{subject.lower()}"


def _entry(rule: KnownRule, example: str | None) -> Iterator[str]:
    yield f"### {rule.id}"
    yield ""
    yield f"{_markdown(rule.title)}"
    yield ""
    facts = [f"**{rule.severity}**", f"checks {rule.checks}"]
    if rule.reads:
        facts[-1] += f" ({', '.join(rule.reads)})"
    if rule.when:
        facts.append(f"noticed {_KINDS[rule.when]}")
    if rule.versions:
        facts.append(f"DeepSpeed {_markdown(rule.versions)}")
    yield f"- {'; '.join(facts)}"
    for name, text in (("Without it", rule.prevents), ("Fix", rule.fix), ("Source", rule.source)):
        if text:
            yield f"- {name}: {_markdown(text)}"
    if example:
        longest = max((len(run) for run in example.split("\n") if set(run) == {"`"}), default=0)
        fence = "`" * max(3, longest + 1)
        yield from ("", f"{fence}text", *example.rstrip("\n").split("\n"), fence)


def _markdown(text: str) -> str:
    """`text` with what Markdown would take for markup escaped, save for code in backticks."""
    parts = " ".join(text.split()).split("`")
    closed = len(parts) % 2 == 1
    shown = (part if closed and i % 2 else _escaped(part) for i, part in enumerate(parts))
    return ("`" if closed else "\\`").join(shown)


def _escaped(text: str) -> str:
    text = re.sub(r"[\\*_\[\]|#]", r"\\\g<0>", text)
    return text.replace("<", "&lt;").replace(">", "&gt;")
