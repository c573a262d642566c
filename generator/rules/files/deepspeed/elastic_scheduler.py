"""The elasticity that a resource scheduler was told of, and the one that the job reads."""

from __future__ import annotations

import json
from typing import Final

from ....documents.links import used_config
from ....documents.submission import Submission
from ....findings import ERROR, Violation, Violations
from ...rule import submissions
from ...sources import deepspeed
from ..launching.settings import known
from .problem import as_hjson, shown

VARIABLE: Final = "DEEPSPEED_ELASTICITY_CONFIG"
#: What DeepSpeed compares, with its defaults (deepspeed/elasticity/constants.py).
_COMPARED: Final = (("max_train_batch_size", None), ("micro_batch_sizes", None), ("version", 0.2))


@submissions.rule(
    "ELAS006",
    ERROR,
    "parse",
    deepspeed("elasticity/elasticity.py:217-233"),
    before=(0, 19, 8),
    reads=("DeepSpeed config", "launch script", "AzureML job"),
)
def scheduler_sees_the_same_elasticity(submission: Submission) -> Violations:
    """The elasticity that the scheduler sees by DEEPSPEED_ELASTICITY_CONFIG is the one of the config.

    Prevents: ElasticityConfigError: Elastic config ... seen by resource scheduler does not match config passed to
    Fix: The same block in both.
    """
    config = used_config(submission)
    block = {} if config is None or config.json.broken is not None else config.block("/elasticity")
    for setting, text in known(submission, VARIABLE) if block.get("enabled") else ():
        seen = _object(text)
        if seen is None:
            message = f"{VARIABLE} is no JSON object, as which DeepSpeed reads it"
            yield Violation(where=setting.where, message=message, hint="the elasticity block of the config, as JSON")
            continue
        for key, default in _COMPARED:
            theirs, ours = as_hjson(seen.get(key, default)), as_hjson(block.get(key, default))
            if theirs != ours and theirs is not None and ours is not None:
                told, has = _listed(theirs), _listed(ours)
                message = f"{VARIABLE} has {key} {told}, the config {has}: DeepSpeed refuses to start"
                yield Violation(where=setting.where, message=message, hint=f'"{key}": {has} in both')


def _object(text: str) -> dict[str, object] | None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _listed(value: object) -> str:
    if not isinstance(value, list):
        return shown(value)
    return f"[{', '.join(shown(item) for item in value[:8])}{', ...' if len(value) > 8 else ''}]"
