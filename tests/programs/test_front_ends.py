"""Launches of programs that start an engine with words of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsgen.check.read import read_documents
from dsgen.check.validate import validate
from dsgen.programs.launching import front_ends as table
from dsgen.programs.launching.front_ends import FrontEnd, front_ends
from dsgen.programs.megatron.arguments import MegatronArguments
from dsgen.text.around import checking


def _arguments(folder: Path, script: str) -> MegatronArguments:
    (folder / "run.sh").write_text(f"#!/bin/bash\n{script}\n")
    with checking([folder]):
        documents = read_documents([folder]).documents
    (found,) = (one for one in documents if isinstance(one, MegatronArguments))
    return found


def test_rows_are_whole() -> None:
    """Every row has a source and a way to be recognised, and says whose options it reads."""
    for row in front_ends().values():
        assert row.source and (row.commands or row.modules or (row.scripts and row.signs)), row.name
        assert row.engine in ("", "megatron", "trainer"), row.name


def test_slimes_words_are_megatrons(tmp_path: Path) -> None:
    """Options of slime's own and SGLang's are left out, and its defaults are Megatron's."""
    found = _arguments(
        tmp_path,
        "ray job submit --address=a -- python3 train.py --actor-num-nodes 2 --colocate "
        "--sglang-ep-size 8 --rollout-batch-size 32 --hf-checkpoint c "
        "--tensor-model-parallel-size 4 --lr 1e-6",
    )
    assert dict(found.values) == {
        "--tensor-model-parallel-size": 4,
        "--lr": 1e-6,
        "--micro-batch-size": 1,
    }
    assert (found.strays, found.may_have("--seq-length"), found.has("--seq-length")) == (
        (),
        True,
        False,
    )


def test_a_budget_replaces_the_micro_batch(tmp_path: Path) -> None:
    """With a budget of tokens the size of the micro-batch isn't known."""
    found = _arguments(
        tmp_path,
        "python train.py --actor-num-nodes 2 --colocate --use-dynamic-batch-size "
        "--micro-batch-size 4",
    )
    assert found.integer("--micro-batch-size") is None


def test_swifts_flags_have_values(tmp_path: Path) -> None:
    """Names with underscores and flags with values are Megatron's; what needs tensor ranks is off
    without them.
    """
    found = _arguments(
        tmp_path,
        "megatron sft --model m --sequence_parallel true --tensor_model_parallel_size 1 "
        "--bf16 false --moe_permute_fusion true --loss_scale hermes",
    )
    assert dict(found.values) == {
        "--tensor-model-parallel-size": 1,
        "--moe-permute-fusion": True,
        "--micro-batch-size": 1,
        "--global-batch-size": 16,
        "--expert-tensor-parallel-size": 1,
    }
    assert found.strays == ()


@pytest.mark.parametrize(
    ("script", "gpus"),
    [
        ("python train.py --actor-num-nodes 2 --colocate --lr 1", 16),
        ("python train.py --actor-num-nodes 2 --actor-num-gpus-per-node 4 --lr 1", 8),
        ("python train.py --colocate --rollout-batch-size 1 --lr 1", 8),
        ("NPROC_PER_NODE=4 megatron sft --model m", 4),
        ("export NPROC_PER_NODE=4 NNODES=2\nmegatron sft --model m", 8),
        ("NPROC_PER_NODE=4 NNODES=$N megatron sft --model m", None),
        ("megatron sft --model m", None),
    ],
)
def test_the_world_is_the_front_ends(script: str, gpus: int | None, tmp_path: Path) -> None:
    """GPUs are those of the front end's options or variables, with its defaults."""
    script += " --tensor_model_parallel_size 3" if "megatron" in script else ""
    script += " --tensor-model-parallel-size 3" if "train.py" in script else ""
    (tmp_path / "run.sh").write_text(f"#!/bin/bash\n{script}\n")
    found = [one.message for one in validate([tmp_path]).findings if one.rule == "MLM001"]
    assert any(f"{gpus} GPUs" in message for message in found) == (gpus is not None)


def test_another_engine_is_not_read(tmp_path: Path) -> None:
    """Of a launch that asks for an engine which isn't read, only counts are checked."""
    (tmp_path / "run.sh").write_text(
        "#!/bin/bash\npython train.py --actor-num-nodes 2 --colocate --train-backend fsdp\n"
    )
    (only,) = validate([tmp_path]).not_checked
    assert only.reason == "FSDP, with which slime trains here; only counts are checked"


def test_a_front_end_is_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that isn't in the table is read once it has a row."""
    rows = dict[str, FrontEnd]()
    rows["forge"] = FrontEnd(
        name="forge",
        source="a test",
        commands={"forge": ["pretrain"]},
        engine="megatron",
        settings={
            "nodes": {"names": ["NNODES"], "default": 1},
            "per_node": {"names": ["--gpus"]},
        },
    )
    monkeypatch.setattr(table, "front_ends", lambda: rows)
    monkeypatch.setattr("dsgen.programs.launching.settings.front_ends", lambda: rows)
    table.of_command.__globals__["_by_command"].cache_clear()
    (tmp_path / "run.sh").write_text(
        "#!/bin/bash\nforge pretrain --gpus 8 --tensor-model-parallel-size 3\n"
    )
    try:
        assert "MLM001" in {one.rule for one in validate([tmp_path]).findings}
    finally:
        table.of_command.__globals__["_by_command"].cache_clear()
