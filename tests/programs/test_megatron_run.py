"""`MegatronRun`: what arguments and their submission give of a run, each question answered once."""

from __future__ import annotations

from typing import Any

import pytest

from dsgen.check.rules.planning import RULES
from dsgen.check.rules.run import all_file_rules
from dsgen.findings import Severity
from dsgen.programs.megatron.arguments import read_file
from dsgen.programs.megatron.facts import megatron_facts
from dsgen.programs.megatron.run import MegatronRun, megatron_runs
from dsgen.programs.megatron.table import LARGEST
from dsgen.programs.records import PROGRAMS
from dsgen.rule import findings_of
from dsgen.submission.submission import Context, Submission
from dsgen.text.text import text_of
from tests.programs.places import read_by

SHAPE = "--num-layers 24 --hidden-size 64 --num-attention-heads 4"


def submission_of(options: str, **context: Any) -> Submission:
    """A file of arguments as a submission."""
    documents = (read_by(read_file, text_of(f"{SHAPE} {options}\n", "arguments.txt")),)
    return Submission(programs=PROGRAMS, documents=documents, context=Context(**context))


def run_of(options: str, **context: Any) -> MegatronRun:
    """A file of arguments as a run."""
    [run] = megatron_runs(submission_of(options, **context))
    return run


@pytest.mark.parametrize(
    ("options", "tensor"),
    [
        ("", 1),
        ("--tensor-model-parallel-size 4", 4),
        ("--tensor-model-parallel-size 0", None),
        (f"--tensor-model-parallel-size {LARGEST + 1}", None),
        ("--tensor-model-parallel-size $TP", None),
        ("$MORE", None),
    ],
)
def test_a_size_is_known_or_none(options: str, tensor: int | None) -> None:
    """A parallel size is what is given, else 1; None where a variable may hold it, or it is no
    size.
    """
    assert run_of(options).tensor == tensor


def test_replicas_follow_from_gpus_and_sizes() -> None:
    """GPUs over tensor × pipeline × context; None where they don't divide, or are cut in other
    ways.
    """
    options = (
        "--tensor-model-parallel-size 2 --pipeline-model-parallel-size 3 --context-parallel-size 2"
    )
    run = run_of(options, gpus=48)
    assert (run.model_parallel, run.gpus, run.replicas) == (12, 48, 4)
    assert run_of(options, gpus=50).replicas is None
    assert run_of(f"{options} --encoder-tensor-model-parallel-size 2", gpus=48).replicas is None


@pytest.mark.parametrize(
    ("options", "chunks"),
    [
        ("", None),
        ("--num-virtual-stages-per-pipeline-rank 3", 3),
        ("--num-layers-per-virtual-pipeline-stage 3", 2),
        ("--num-layers-per-virtual-pipeline-stage 5", None),
    ],
)
def test_chunks_are_counted_or_follow_from_their_layers(options: str, chunks: int | None) -> None:
    """Chunks of a stage, given as a number or by the layers of each; None where they don't divide a
    stage's layers.
    """
    assert run_of(f"--pipeline-model-parallel-size 4 {options}").chunks == chunks


def test_a_run_answers_by_option() -> None:
    """An option has its typed value, None where that can't be known, and its place."""
    run = run_of("--bf16 --lr 1e-4 --micro-batch-size $MICRO")
    assert run.value("--lr") == 1e-4 and run.value("--bf16") is True
    assert run.has("--micro-batch-size") and run.value("--micro-batch-size") is None
    assert run.locate("--bf16").column == len(SHAPE) + 2


def test_a_run_has_the_facts_that_its_arguments_state() -> None:
    """Facts that an unknown option may change are not among them; the job is in the vocabulary of
    options.
    """
    [run] = megatron_facts(
        submission_of("--tensor-model-parallel-size 2 --global-batch-size $BATCH", gpus=8)
    )
    assert run.knows("tensor", "pipeline", "gpus", "data", "layers", "heads")
    assert not any(
        map(run.knows, ("global_batch", "gradient_accumulation", "cluster", "sequence_length"))
    )
    assert (
        run.job.says("tensor", 2) == "--tensor-model-parallel-size 2" and run.job.pins.tensor == 2
    )


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("", (None, None, None, False)),
        ("--grad-reduce-in-bf16", ("same", None, None, False)),
        ("--use-precision-aware-optimizer", (None, "fp32", "fp32", False)),
        (
            "--use-precision-aware-optimizer --exp-avg-dtype fp8 --exp-avg-sq-dtype bf16 "
            "--main-params-dtype fp16",
            (None, "bf16", "fp16", False),
        ),
        ("--fp8-format hybrid --fp8-param-gather", (None, None, None, True)),
        ("--fp4-format e2m1 --fp4-param-gather", (None, None, None, True)),
    ],
)
def test_state_types_are_read(options: str, expected: tuple[Any, ...]) -> None:
    """A run's types of gradients, moments and master weights are its options', the wider one where
    moments differ.
    """
    [run] = megatron_facts(
        submission_of(f"--bf16 --use-distributed-optimizer --global-batch-size 8 {options}", gpus=8)
    )
    training = run.job.training
    found = (
        training.gradient_dtype,
        training.moment_dtype,
        training.master_dtype,
        training.fp8_parameters,
    )
    assert found == expected


CUT = "--tensor-model-parallel-size 4 --sequence-parallel --context-parallel-size 4"


@pytest.mark.parametrize(
    ("options", "pins"),
    [
        (
            "",
            {
                "tensor_overlap": False,
                "expert_overlap": False,
                "zero_copies": 1,
                "context_heads": 1,
            },
        ),
        ("--tp-comm-overlap", {"tensor_overlap": True}),
        ("--overlap-moe-expert-parallel-comm", {"expert_overlap": True}),
        ("--num-distributed-optimizer-instances 2", {"zero_copies": 2}),
        ("--num-distributed-optimizer-instances $N", {"zero_copies": None}),
        ("--cp-comm-type a2a", {"context_heads": 4}),
        ("--cp-comm-type a2a+p2p --hierarchical-context-parallel-sizes 2 2", {"context_heads": 2}),
        ("--cp-comm-type allgather", {"context_heads": None}),
        ("--num-experts 8", {"expert_tensor": 4}),
        ("--num-experts 8 --expert-tensor-parallel-size 1", {"expert_tensor": 1}),
        ("", {"expert_tensor": 1}),
    ],
)
def test_knobs_are_read(options: str, pins: dict[str, Any]) -> None:
    """Overlap, optimizer instances, what context ranks exchange and how experts are cut; None where
    not known.
    """
    [run] = megatron_facts(submission_of(f"{CUT} {options}"))
    assert {name: getattr(run.job.pins, name) for name in pins} == pins
    assert {name: run.knows(name) for name in pins} == {
        name: value is not None for name, value in pins.items()
    }


def broken(options: str) -> set[str]:
    """The layout rules that a script's arguments break."""
    found = findings_of(
        RULES, submission_of(f"{CUT} --use-distributed-optimizer {options}", gpus=64)
    )
    return {finding.rule for finding in found if finding.severity is Severity.ERROR}


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ("--overlap-moe-expert-parallel-comm --num-experts 8 --bf16", "MLM124"),
        (
            "--overlap-moe-expert-parallel-comm --num-experts 8 --expert-model-parallel-size 4",
            "MLM127",
        ),
        ("--cp-comm-type a2a", "MLM131"),
        ("--window-size (127,0) --seq-length 4096", "MLM132"),
        ("--softmax-type learnable", "MLM132"),
        ("--multi-latent-attention --cp-comm-type a2a", "MLM133"),
    ],
)
def test_foreign_arguments_are_judged_by_the_rules_of_plans(options: str, rule: str) -> None:
    """What a planned layout may not do, a script may not either; and what is not known is not
    judged.
    """
    assert rule in broken(options)
    assert not {"MLM131", "MLM132", "MLM133"} & broken(f"{options} --cp-comm-type allgather")


def test_gathers_beside_the_optimizers_step_need_chunks_and_plain_checkpoints() -> None:
    """A gather needs no interleaving; one beside the optimizer's step does, and --ckpt-format
    torch.
    """

    def refused(options: str) -> bool:
        both = (
            f"{SHAPE} --overlap-grad-reduce --overlap-param-gather "
            f"--use-distributed-optimizer {options}"
        )
        return "MLM020" in {
            finding.rule for finding in findings_of(all_file_rules(), submission_of(both))
        }

    later, chunks = (
        "--overlap-param-gather-with-optimizer-step",
        "--num-virtual-stages-per-pipeline-rank 2",
    )
    assert not refused("")
    assert (
        refused(later) and refused(f"{later} {chunks}") and refused(f"{later} --ckpt-format torch")
    )
    assert not refused(f"{later} {chunks} --ckpt-format torch")
