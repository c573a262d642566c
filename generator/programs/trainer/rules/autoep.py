"""DeepSpeed's AutoEP under the Trainer, which spreads a model's experts and knows nothing of it.

It was run with two ranks: DeepSpeed 0.19.8, transformers 5.22.2 and 5.23.0.
"""

from __future__ import annotations

from typing import Final

from ....findings import ERROR, WARNING, Severity, Violation, Violations
from ....rules.violations import deepspeed_0_19_8, transformers, violation
from ....text.wording import whole_number
from ...deepspeed.config import ZERO
from ...python_around import release_for
from .configs import Pair, pairs

_EXPERTS: Final = "/expert_parallel"
_SIZE: Final = f"{_EXPERTS}/autoep_size"
_GATHERS: Final = f"{ZERO}/stage3_gather_16bit_weights_on_model_save"
_FIRST_WITH_AUTOEP: Final = (0, 19, 2)
#: The first release of transformers that AutoEP starts with, and the first that is too new for it.
#: Source: deepspeedai/DeepSpeed deepspeed/module_inject/auto_ep_presets/base.py:326 @ 0.19.8;
#: huggingface/transformers src/transformers/utils/output_capturing.py:48 @ 5.23.0.
_STARTS_WITH: Final = ((5,), (5, 23))


def _spreads_experts(pair: Pair) -> bool:
    """Return whether a config switches AutoEP on, of a release that has it."""
    config = pair.config
    is_on = bool(config.block(_EXPERTS)) and bool(config.switch(f"{_EXPERTS}/enabled"))
    if not is_on or config.version < _FIRST_WITH_AUTOEP:
        return False
    return (whole_number(config.value(_SIZE)) or 1) > 1


#: Arguments whose DeepSpeed config spreads the experts over ranks.
_spread: Final = pairs.where(_spreads_experts)


@_spread.rule("HF047", ERROR, "init", deepspeed_0_19_8("module_inject/auto_ep_presets/base.py:326"))
def autoep_starts_with_transformers(pair: Pair) -> Violations:
    """AutoEP of DeepSpeed 0.19 starts with transformers 5.0 to 5.22.
    Prevents: TypeError: _CanRecordRegistry.get() takes 2 positional arguments but 3 were given
    Fix: install transformers 5.22.2
    """
    library = release_for("transformers", pair.config.path, pair.arguments.launches)
    first, after = _STARTS_WITH
    if first <= library.version < after or not library.is_known:
        return
    # Where no file names the release, it may be an older one.
    is_certain = library.where and library.certain(lambda version: not first <= version < after)
    severity = None if is_certain else Severity.WARNING
    message = f"AutoEP does not start with {library}: it takes 5.0 to 5.22"
    where = pair.config.locate_key(_EXPERTS)
    yield Violation(where, message, "install transformers==5.22.2", severity=severity)


@_spread.rule("HF048", WARNING, "silent", transformers("src/transformers/trainer.py (save_model)"))
def saved_models_have_all_experts(pair: Pair) -> Violations:
    """With AutoEP at stage 1 or 2, the Trainer saves the experts of rank 0 as the model.
    Prevents: No error: model.safetensors lacks the experts of other ranks, under names that no
    model has.
    Fix: take the weights from DeepSpeed's checkpoint, by ds_to_universal.py
    """
    stage = pair.config.stage
    if stage is not None and stage < 3:
        size = whole_number(pair.config.value(_SIZE))
        message = f"autoep_size {size}: save_model writes one in {size} experts, those of rank 0"
        hint = "take the weights from DeepSpeed's checkpoint, by ds_to_universal.py"
        yield violation(pair.config, _SIZE, message, hint)


@_spread.rule("HF049", ERROR, "training", deepspeed_0_19_8("runtime/engine.py:5626"))
def autoep_gathers_no_model(pair: Pair) -> Violations:
    """With AutoEP at stage 3, stage3_gather_16bit_weights_on_model_save is off.
    Prevents: NotImplementedError at the first save: not supported for AutoEP with ZeRO Stage 3
    Fix: set it to false
    """
    if pair.config.stage == 3 and pair.config.switch(_GATHERS):
        message = "gathering the weights on saving is refused with AutoEP at stage 3"
        hint = "set it to false, and take the weights from the checkpoint by ds_to_universal.py"
        yield violation(pair.config, _GATHERS, message, hint)
