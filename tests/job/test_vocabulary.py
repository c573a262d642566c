"""How decisions are called by who reads of them."""

from __future__ import annotations

from types import SimpleNamespace

from dsgen.estimate.layout import Offload
from dsgen.text.wording import OF_SPECS, Vocabulary

OPTIONS = Vocabulary(
    phrases={
        "tensor": "--tensor-model-parallel-size {}",
        "data": "{} replicas",
        "global_batch": "--global-batch-size {}",
        "recompute: none": "no recomputation",
        "recompute: full": "--recompute-granularity full",
        "without sequence_parallel": "remove --sequence-parallel",
    },
    by_batch=True,
)


def test_a_spec_has_its_keys() -> None:
    """Without phrases, a decision is a key of the job spec with its value or its choices."""
    assert OF_SPECS.says("tensor", 3) == "tensor: 3"
    assert OF_SPECS.says("tensor", 1, 2, 4) == "tensor: 1, 2 or 4"
    assert OF_SPECS.says("sequence_parallel", True) == "sequence_parallel: true"
    assert (
        OF_SPECS.says("offload", Offload.OPTIMIZER_AND_PARAMETERS)
        == "offload: optimizer+parameters"
    )


def test_a_phrase_holds_the_values() -> None:
    """A phrase has the value, or all choices, in its place; a value's own phrase comes first."""
    assert OPTIONS.says("tensor", 1, 2) == "--tensor-model-parallel-size 1 or 2"
    assert OPTIONS.says("data", "2 or more") == "2 or more replicas"
    assert (
        OPTIONS.says("recompute", "none", "full")
        == "no recomputation or --recompute-granularity full"
    )


def test_micro_batches_are_set_by_the_key_that_there_is() -> None:
    """A spec sets numbers of micro-batches, and options the global batches that they add up to."""
    layout = SimpleNamespace(micro_batch=2, data=3)
    assert OF_SPECS.micro_batches([4, 8], layout) == "gradient_accumulation: 4 or 8"
    assert OPTIONS.micro_batches([4, 8], layout) == "--global-batch-size 24 or 48"


def test_a_switch_is_turned_off_as_its_reader_does() -> None:
    """A spec has the key with false, and a script lacks the option."""
    assert OF_SPECS.without("sequence_parallel") == "use sequence_parallel: false"
    assert OPTIONS.without("sequence_parallel") == "remove --sequence-parallel"
