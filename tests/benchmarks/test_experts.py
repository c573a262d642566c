"""The collection of experts' layouts: well-formed, and refused only for reasons that were
checked.
"""

from __future__ import annotations

import re
from math import prod

import pytest

from benchmarks import experts
from benchmarks.experts import Expert
from dsgen.search.feasible import feasible_layouts
from dsgen.search.search import binding_rule

ROWS = experts.experts()
#: Keys that `layout` may have: the spec's, and those that are kept for the reader until the spec
#: has them.
WORDS = {
    *(
        "tensor",
        "pipeline",
        "virtual_pipeline",
        "context",
        "expert",
        "expert_tensor",
        "sequence_parallel",
    ),
    *(
        "zero_stage",
        "zero_copies",
        "micro_batch",
        "recompute",
        "recompute_layers",
        "recompute_modules",
    ),
    *("offload", "offload_fraction", "tensor_overlap", "expert_overlap", "context_heads"),
}

#: Refusals without a reason that was checked: 0 is the aim.
TO_MEND = 0

each = pytest.mark.parametrize("expert", ROWS, ids=lambda expert: expert.name)


def test_enough_of_every_kind() -> None:
    """The collection spans generations, sizes, precisions and frameworks, and repeats no layout of
    a job.
    """
    assert len(ROWS) >= 51
    assert {row.row["cluster"] for row in ROWS} >= {
        "h100",
        "h800",
        "a100",
        "b200",
        "gb200",
        "gb300",
        "jean-zay-v100",
    }
    assert {row.spec["training"]["precision"] for row in ROWS} == {"bf16", "fp16", "fp8"}
    assert (
        min(row.spec["gpus"] for row in ROWS) <= 8
        and max(row.spec["gpus"] for row in ROWS) >= 16384
    )
    jobs = [(str({**row.spec, "name": ""}), str(row.row["layout"])) for row in ROWS]
    assert len(set(jobs)) == len(jobs)


@each
def test_a_row_is_well_formed(expert: Expert) -> None:
    """Its source is named, its words are known, and what it prints divides its GPUs and its
    batch.
    """
    row, said = expert.row, expert.row["layout"]
    place, _, rest = row["source"].partition(":")
    assert rest
    assert place.partition("@")[0] in ("arXiv", *experts.collection()["sources"]) or "/" in place
    assert set(said) <= WORDS
    ranks = prod(said.get(key, 1) for key in ("tensor", "pipeline", "context"))
    assert row["gpus"] % ranks == 0
    batch = row["training"]["global_batch"]
    assert batch % said.get("micro_batch", 1) == 0
    if "micro_batch" in said:
        assert batch % (row["gpus"] // ranks * said["micro_batch"]) == 0
    experts.job_of(expert, pinned=True)


def test_what_is_believed_is_in_the_collection() -> None:
    """Explanations of claims name rows that are there, each once."""
    named = [name for entry in experts.collection()["believed"] for name in entry["rows"]]
    assert len(set(named)) == len(named) and set(named) <= {row.name for row in ROWS}


def test_a_layout_keeps_to_what_its_program_could_do_when_it_was_made() -> None:
    """What an option that came later says is left out, unless the row uses it; without a month
    nothing is.
    """
    left = {row.name: experts.left_then(row) for row in ROWS}
    assert left["bloom-176b"] == [
        {"sequence_parallel": False, "recompute": "none", "context": 1},
        {"sequence_parallel": False, "recompute": "full", "context": 1},
    ]
    assert all("tensor_overlap" in way for way in left["starcoder-15b"])  # 2023-10
    assert left["stablelm-3b"] == left["405b-meta-8k"] == [{}]
    for row in ROWS:  # theirs is among what is left
        assert any(
            all(row.pins.get(key, value) == value for key, value in way.items())
            for way in left[row.name]
        )
    months = [row.row["made"] for row in ROWS if "made" in row.row]
    assert len(months) >= 20 and all(re.fullmatch(r"20\d\d-\d\d", month) for month in months)


def test_rows_are_refused_only_for_a_reason() -> None:
    """A layout that experts ran is legal and fits, unless the file says why it need not be; these
    are still to mend.
    """
    jobs = {row.name: experts.job_of(row, pinned=True) for row in ROWS}
    found = {name: feasible_layouts(job) for name, job in jobs.items()}
    refused = {
        name: binding_rule(jobs[name], answer)[0]
        for name, answer in found.items()
        if not len(answer.layouts)
    }
    unexplained = {
        name: rule
        for name, rule in refused.items()
        if rule not in experts.experts([name])[0].allowed
    }
    assert len(unexplained) <= TO_MEND, unexplained
