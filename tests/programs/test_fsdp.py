"""FSDP2 in the Trainer's files, against transformers, accelerate and torch on CPU."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest

import dsgen
from dsgen.estimate import units
from dsgen.estimate.stages import stage_contents
from dsgen.estimate.states import holds_whole_gradients, state_bytes
from dsgen.programs.frameworks import program_for
from dsgen.programs.program import ConfigPath
from tests.needs import needs_transformers
from tests.workers import answers, once

WORKER = Path(__file__).with_name("fsdp_worker.py")
MODEL: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 256,
    "max_position_embeddings": 128,
}


def plan_for(
    gpus: int, layout: dict[str, Any], master_dtype: str = "fp32", **model: Any
) -> dsgen.Plan:
    """The plan of a tiny model over `gpus` accelerators of one node."""
    spec = {
        "framework": "huggingface",
        "model": {**MODEL, **model},
        "cluster": {
            "accelerator": "h100",
            "accelerators_per_node": gpus,
            "network_gbits_per_s_per_node": 400,
        },
        "gpus": gpus,
        "training": {
            "sequence_length": 16,
            "global_batch": 3 * gpus,
            "precision": "bf16",
            "sharding": "fsdp2",
            "master_dtype": master_dtype,
            "duration": {"steps": 4},
        },
        "layout": {"micro_batch": 1, "data": gpus, **layout},
        "output": {"checkpoints": "out"},
        "launch": {"target": "shell", "script": "train.py"},
    }
    return dsgen.estimate(dsgen.load_job(spec))


def question(
    plan: dsgen.Plan,
    folder: Path,
    until: int,
    *,
    by_trainer: bool = False,
    master_dtype: str = "fp32",
    **model: Any,
) -> dict[str, Any]:
    """A run with a plan's arguments, variables and files, up to some step."""
    folder.mkdir(exist_ok=True)
    program = program_for(plan)
    for file in program.files:
        (folder / file.path).write_text(file.text)
    words = [
        str(folder / word.name) if isinstance(word, ConfigPath) else word
        for word in program.arguments
    ]
    return {
        "arguments": words,
        "environment": dict(program.environment),
        "model": {**MODEL, **model},
        "micro_batches": plan.layout.gradient_accumulation,
        "sync": plan.layout.sync_each_batch,
        "until": until,
        "by_trainer": by_trainer,
        "folder": str(folder),
    }


#: Layouts by name, with the number of processes and what differs in the model or its masters.
RUNS: dict[str, tuple[int, dict[str, Any], dict[str, Any]]] = {
    "freed": (2, {"zero_stage": 3}, {}),
    "kept": (2, {"zero_stage": 2}, {}),
    "synced": (2, {"zero_stage": 3, "sync_each_batch": True, "recompute": "full"}, {}),
    "tied": (2, {"zero_stage": 3}, {"tie_word_embeddings": True}),
    "pure bf16": (2, {"zero_stage": 3}, {"master_dtype": "same"}),
    "copies": (4, {"zero_stage": 3, "zero_copies": 2}, {}),
    "kept by four": (4, {"zero_stage": 2, "sync_each_batch": True}, {}),
    "experts": (
        4,
        {"zero_stage": 3},
        {"model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2},
    ),
}
_RESUMED = {"zero_stage": 3, "recompute": "full"}


@once
def runs() -> dict[int, dict[str, dict[str, Any]]]:
    """What becomes of all runs, by their number of processes and name, and of one that is
    interrupted and goes on in new processes.
    """
    asked: dict[int, dict[str, dict[str, Any]]] = {}
    groups = []
    with TemporaryDirectory() as folder:
        for gpus in (2, 4):
            home = Path(folder) / str(gpus)
            home.mkdir()
            asked[gpus] = {
                name: question(plan_for(gpus, layout, **changes), home / name, 1, **changes)
                for name, (count, layout, changes) in RUNS.items()
                if count == gpus
            }
            plan = plan_for(gpus, _RESUMED)
            asked[gpus]["whole"] = question(plan, home / "whole", 4)
            asked[gpus]["interrupted"] = question(plan, home / "parts", 2)
            resumed = question(plan, home / "parts", 4)
            groups += [
                {"gpus": gpus, "runs": [*asked[gpus].values()]},
                {"gpus": gpus, "runs": [resumed]},
            ]
        plan = plan_for(2, _RESUMED)
        home = Path(folder)
        for name, until in (("all", 4), ("parted", 2), ("parted", 4)):
            run = question(plan, home / name, until, by_trainer=True)
            groups.append({"gpus": 2, "runs": [run]})
        told = iter(answers(WORKER, groups))

    found = {}
    for gpus, names in asked.items():
        first, again = next(told), next(told)
        assert "error" not in first, first["error"][-4000:]
        assert "error" not in again, again["error"][-4000:]
        found[gpus] = {**dict(zip(names, first, strict=True)), "resumed": again[0]}
    for name in ("Trainer", "Trainer, stopped", "Trainer, resumed"):
        (found[2][name],) = next(told)
    return found


@needs_transformers
@pytest.mark.integration
@pytest.mark.parametrize("name", RUNS)
def test_runs_as_counted(name: str) -> None:
    """What a launch file says is accepted and trained: every parameter is a DTensor, and units,
    collectives and bytes that torch counts are those of the formulae.
    """
    gpus, layout, changes = RUNS[name]
    plan = plan_for(gpus, layout, **changes)
    job, chosen, found = plan.job, plan.layout, runs()[gpus][name]
    assert found["dtensors"]
    assert found["sync_each_batch"] == chosen.sync_each_batch

    held = stage_contents(job, chosen, np.asarray(0))
    moved = units.moved(job, chosen, held)
    m = chosen.gradient_accumulation
    synced = m if chosen.sync_each_batch else 1
    counted = {
        "_allgather_base_": [
            m * (moved.gathers + moved.gathers_again),
            m * (moved.gathered + moved.gathered_again),
        ],
        "_reduce_scatter_base_": [synced * moved.reductions, synced * moved.reduced],
    }
    shards = gpus // chosen.zero_copies
    if chosen.zero_copies > 1:
        counted["allreduce_"] = [synced * moved.reductions, synced * moved.reduced / shards]
    assert found["collectives"] == counted
    # The root unit has no parameters of its own.
    assert found["units"] in (moved.gathers, moved.gathers + 1)

    each, elements = state_bytes(job, chosen, shards), float(held.shared + held.experts)
    assert found["parameters_bytes"] == elements * each.parameters
    assert found["optimizer_bytes"] == elements * each.optimizer
    assert found["gradients_bytes"] == elements * each.parameters
    whole = holds_whole_gradients(job, chosen)
    assert found["whole_gradients_bytes"] == (elements * each.gradients if whole else 0)


@needs_transformers
@pytest.mark.integration
@pytest.mark.parametrize("gpus", [2, 4])
def test_goes_on_from_its_checkpoint(gpus: int) -> None:
    """A run that was interrupted goes on from its sharded checkpoint, and ends with the weights of
    one that wasn't.
    """
    found = runs()[gpus]
    assert (found["whole"]["steps"], found["resumed"]["steps"]) == (4, 2)
    assert found["resumed"]["weights"] == found["whole"]["weights"]


@needs_transformers
@pytest.mark.integration
def test_trainer_goes_on_from_its_checkpoint() -> None:
    """The Trainer itself, with a launch file's arguments, variables and files, shards, trains, is
    stopped, goes on in new processes, and ends with the weights of a run that wasn't stopped.
    """
    whole, stopped, resumed = (
        runs()[2][name] for name in ("Trainer", "Trainer, stopped", "Trainer, resumed")
    )
    assert whole["dtensors"]
    assert (whole["from"], whole["steps"], stopped["steps"]) == (None, 4, 2)
    assert (resumed["from"], resumed["steps"]) == ("checkpoint-2", 4)
    assert resumed["weights"] == whole["weights"]


@needs_transformers
@pytest.mark.parametrize(("experts", "ranks"), [(8, 4), (8, 6), (8, 3), (6, 4)])
def test_stacked_experts_are_padded(experts: int, ranks: int) -> None:
    """Parts of a tensor of stacked experts are as large as torch.chunk's first."""
    import torch

    largest = len(torch.arange(experts).chunk(ranks)[0])
    plan = plan_for(2, {"zero_stage": 3}, model_type="mixtral", num_local_experts=experts)
    assert units.expert_padding(plan.job, ranks) == largest * ranks / experts
