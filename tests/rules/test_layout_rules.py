"""Layout rules: each on both sides, in columns as in numbers, with hints that are true."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from dsgen.estimate.layout import FIELDS, Layout, LayoutLike, Layouts, Offload, Recompute
from dsgen.rule import Rule
from dsgen.rules.layout.identities import OFFLOAD, RECOMPUTE
from dsgen.rules.run import IDENTITY_RULES, LAYOUT_RULES
from dsgen.text.wording import Vocabulary
from tests.models import changed
from tests.rules.layout_cases import CASES, Case

RULES = {rule.id: rule for rule in (*LAYOUT_RULES, *IDENTITY_RULES)}
SIZES = (1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 49, 64, 96, 98)

KEYS = (
    *FIELDS,
    "gpus",
    "global_batch",
    "sequence_length",
    "precision",
    "attention",
    "optimizer",
    "framework",
)

every_rule = pytest.mark.parametrize("name", sorted(RULES))


def random_layouts(count: int) -> Layouts:
    """Layouts whose fields are drawn independently: most of them break several rules."""
    draw = np.random.default_rng(20)
    columns: dict[str, Any] = {name: draw.choice(SIZES, count) for name in FIELDS}
    columns["sequence_parallel"] = draw.random(count) < 0.5
    for name in ("tensor_overlap", "expert_overlap", "sync_each_batch"):
        columns[name] = draw.random(count) < 0.5
    columns["recompute_modules"] = draw.integers(1, 128, count)
    columns["zero_stage"] = draw.integers(0, 4, count)
    columns["recompute"] = draw.integers(0, len(Recompute), count)
    columns["offload"] = draw.integers(0, len(Offload), count)
    return Layouts(**columns)


def value_of(name: str, word: str) -> Any:
    """The value of a `Layout`'s field that a hint spells as `word`."""
    spelled: dict[str, dict[str, Any]] = {
        "recompute": RECOMPUTE,
        "offload": OFFLOAD,
        **{
            key: {"true": True, "false": False}
            for key in (
                "sequence_parallel",
                "tensor_overlap",
                "expert_overlap",
                "sync_each_batch",
            )
        },
    }
    return spelled[name][word] if name in spelled else int(word)


def hinted(hint: str) -> list[tuple[str, Any]]:
    """The values of the first layout key that a hint names."""
    found = re.match(
        r"use (\w+): ([\w+]+(?:(?:, | or )(?!or\b|more\b|pin\b|Deep)[\w+]+\b(?!:))*)", hint
    )
    if not found or found[1] not in FIELDS:
        return []
    return [(found[1], value_of(found[1], word)) for word in re.split(r", | or ", found[2])]


def test_every_layout_rule_has_a_case() -> None:
    """No layout rule goes untried."""
    assert set(CASES) == set(RULES)


@every_rule
def test_rule_tells_legal_from_illegal(name: str) -> None:
    """A rule binds its case's job, holds for the legal layout and not for the other."""
    rule, case = RULES[name], CASES[name]
    assert rule.columns.binds(case.job)
    assert rule.columns.holds(case.job, Case.layout(case.passes))
    assert not rule.columns.holds(case.job, Case.layout(case.breaks))


@every_rule
def test_message_names_both_numbers(name: str) -> None:
    """The message of a breach holds the value that was chosen and the fact it breaks on."""
    rule, case = RULES[name], CASES[name]
    message, hint = rule.columns.explain(case.job, Case.layout(case.breaks))
    assert case.says
    for words in case.says:
        assert words in message
    assert hint


@every_rule
def test_hint_passes(name: str) -> None:
    """Each value that a hint gives for the first key it names makes the layout pass the rule."""
    rule, case = RULES[name], CASES[name]
    broken = Case.layout(case.breaks)
    _, hint = rule.columns.explain(case.job, broken)
    for key, value in hinted(hint):
        assert rule.columns.holds(case.job, replace(broken, **{key: value})), f"{key}: {value}"


@every_rule
def test_explanation_is_in_the_readers_vocabulary(name: str) -> None:
    """With a vocabulary that has other phrases, no key of a job spec is left in message and
    hint.
    """
    case = CASES[name]
    origin = replace(
        case.job.origin, vocabulary=Vocabulary(phrases={key: f"<{key} {{}}>" for key in KEYS})
    )
    explanation = RULES[name].columns.explain(
        replace(case.job, origin=origin), Case.layout(case.breaks)
    )
    assert not [text for text in explanation if re.search(rf"({'|'.join(KEYS)}): ", text)]
    assert any(f"<{key} " in text for key in KEYS for text in explanation)


def test_most_hints_name_values() -> None:
    """The test of hints above reads values out of nearly all of them."""
    read = [
        hinted(rule.columns.explain(CASES[n].job, Case.layout(CASES[n].breaks))[1])
        for n, rule in RULES.items()
    ]
    assert sum(bool(values) for values in read) >= len(read) - 9


@every_rule
def test_columns_equal_numbers(name: str) -> None:
    """A rule says of a column of layouts what it says of each one."""
    rule, case = RULES[name], CASES[name]
    layouts = random_layouts(400)
    columnar = np.broadcast_to(np.asarray(rule.columns.holds(case.job, layouts)), len(layouts))
    assert columnar.dtype == np.bool_
    assert columnar.tolist() == [bool(rule.columns.holds(case.job, layout)) for layout in layouts]


@every_rule
def test_rule_reads_what_it_declares(name: str) -> None:
    """A rule reads no field of a layout but its declared variables, which exist."""
    rule = RULES[name]
    declared = {f.name for f in fields(Layout)} & set(rule.columns.reads)
    assert declared == set(rule.columns.reads)
    partial = SimpleNamespace(**{name: np.array([1, 2]) for name in rule.columns.reads})
    rule.columns.holds(CASES[name].job, cast(LayoutLike, partial))


def binding(name: str) -> Rule:
    """The rule, by id."""
    return RULES[name]


def test_pinned_tensor_may_leave_the_node() -> None:
    """Tensor parallelism between nodes is an error of the search's own choices and a warning for a
    pin.
    """
    free, pinned = CASES["NODE001"].job, CASES["NODE002"].job
    assert binding("NODE001").columns.binds(free)
    assert not binding("NODE002").columns.binds(free)
    assert binding("NODE002").columns.binds(pinned)
    assert not binding("NODE001").columns.binds(pinned)


def test_rack_scale_domain_counts_as_node() -> None:
    """In a rack-scale system tensor parallelism may span nodes within the fast fabric."""
    case = CASES["NODE001"]
    rack = replace(
        case.job, cluster=replace(case.job.cluster, accelerators_per_node=4, link_domain=72)
    )
    assert binding("NODE001").columns.holds(rack, Layout(data=1, tensor=8))
    assert not binding("NODE001").columns.holds(case.job, Layout(data=1, tensor=16))


def test_newer_deepspeed_takes_autotp_with_stage_3() -> None:
    """From DeepSpeed 0.19.4 on, AutoTP runs with ZeRO stage 3."""
    job = CASES["ZERO041"].job
    assert binding("ZERO041").columns.binds(job)
    assert not binding("ZERO041").columns.binds(replace(job, deepspeed_version=(0, 19, 4)))


def test_published_layouts_are_legal() -> None:
    """Uneven pipelines that were run pass: BLOOM's with embedding and loss counted, and
    Megatron-LM's interleaved.
    """
    bloom = CASES["MDS046"].job
    for layers, pipeline in ((70, 12), (126, 16), (105, 35), (128, 64)):
        deep = replace(bloom, model=changed(bloom.model, layers=layers))
        assert binding("MDS046").columns.holds(deep, Layout(data=1, pipeline=pipeline))
    job = CASES["MLM015"].job
    for layers, pipeline, chunks in (
        (126, 8, 8),
        (126, 16, 4),
        (61, 4, 4),
        (61, 2, 8),
        (94, 8, 4),
        (80, 4, 5),
    ):
        deep = replace(job, model=changed(job.model, layers=layers))
        layout = Layout(data=1, pipeline=pipeline, virtual_pipeline=chunks)
        assert binding("MLM003").columns.holds(deep, layout)
        assert binding("MLM015").columns.holds(deep, layout)
