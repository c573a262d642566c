"""What releases of PyTorch and accelerate lack, or break, for FSDP2."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from ....findings import ERROR, WARNING, Violation, Violations
from ....rules.violations import accelerate
from ....submission.subjects import subject
from ....submission.submission import Submission
from ...python_around import release_in
from ...releases import Release
from ..fsdp_config import Fsdp
from .fsdp import fsdp2

_FIRST_TORCH: Final = (2, 6)  #: utils/constants.py, FSDP2_PYTORCH_VERSION
_STRICT_TORCH: Final = (2, 13)  #: the first that refuses a parameter of two groups
#: The first accelerate that groups norm and embedding, and the first that keeps tied ones together.
_SPLITS_TIED: Final = ((1, 14), (1, 15))
#: The first accelerate that loads sharded optimizers by a planner.
_LOADS_OPTIMIZERS: Final = (1, 15)
_LOADS: Final = (
    "huggingface/accelerate src/accelerate/utils/fsdp_utils.py:321 @ 1.14.0; "
    "https://github.com/huggingface/accelerate/issues/3971"
)
_TIED: Final = (
    "pytorch/pytorch torch/distributed/fsdp/_fully_shard/_fsdp_state.py:217-230 @ 2.13.0; "
    "https://github.com/huggingface/accelerate/pull/4171"
)


class Released(NamedTuple):
    """A run with FSDP2, and the releases by which it is judged."""

    fsdp: Fsdp
    torch: Release
    accelerate: Release


@subject("accelerate config", "training arguments", "FSDP config")
def released(submission: Submission) -> Iterator[Released]:
    """FSDP2's settings with the releases of PyTorch and accelerate that the project names."""
    for fsdp in fsdp2(submission):
        path = fsdp.where.path or (fsdp.arguments.path if fsdp.arguments is not None else "")
        torch, library = (release_in(submission, name, path) for name in ("torch", "accelerate"))
        yield Released(fsdp, torch, library)


@released.rule("FSDP047", ERROR, "init", accelerate("utils/dataclasses.py:1833-1835"))
def torch_has_fsdp2(run: Released) -> Violations:
    """FSDP2 runs with PyTorch 2.6 or later.
    Prevents: ImportError: FSDP2 requires PyTorch >= 2.6.0
    Fix: install torch 2.6 or later, or use fsdp_version: 1
    """
    if run.torch.certain(lambda version: version < _FIRST_TORCH):
        message = f"FSDP2 with {run.torch}, which needs 2.6 or later"
        where = run.fsdp.locate("version")
        yield Violation(where, message, "install torch 2.6 or later")


@released.rule("FSDP048", WARNING, "training", _LOADS)
def sharded_optimizers_are_loaded(run: Released) -> Violations:
    """accelerate 1.15 or later loads the optimizer of a sharded checkpoint.
    Prevents: RuntimeError: Missing key in checkpoint state_dict: optimizer.state.0.step, when it is
    resumed
    Fix: install accelerate 1.15 or later, or save with FULL_STATE_DICT
    """
    library = run.accelerate
    is_sharded = run.fsdp.text("state_dict_type") == "SHARDED_STATE_DICT"
    is_old = library.where and library.certain(lambda version: version < _LOADS_OPTIMIZERS)
    if is_sharded and is_old:
        message = f"SHARDED_STATE_DICT with {library}: resuming may not find the optimizer's step"
        hint = "install accelerate 1.15 or later, or use FULL_STATE_DICT"
        yield Violation(run.fsdp.locate("state_dict_type"), message, hint)


@released.rule("FSDP049", ERROR, "training", _TIED)
def tied_embeddings_are_in_one_group(run: Released) -> Violations:
    """A model with tied embeddings is trained with accelerate 1.15 where PyTorch is 2.13 or later.
    Prevents: ValueError: Parameter is shared with a parameter already managed by another FSDP group
    Fix: install accelerate 1.15 or later
    """
    model, library, (first, after) = run.fsdp.model, run.accelerate, _SPLITS_TIED
    if model is None or not model.tied_embeddings:
        return
    splits_them = library.certain(lambda version: first <= version < after)
    is_strict = run.torch.where and run.torch.certain(lambda version: version >= _STRICT_TORCH)
    if splits_them and is_strict:
        message = f"{model.name} ties its embeddings, which {library} puts into two groups"
        hint = f"install accelerate 1.15 or later: {run.torch} refuses that"
        yield Violation(run.fsdp.locate("version"), message, hint)
