"""What the keys of a job are called by those who wrote Megatron's options, or a DeepSpeed config."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Final, get_args

from ...job.vocabulary import Vocabulary
from .options import Flavour

_PHRASES: Final[dict[str, dict[str, str]]] = json.loads(
    files(__package__).joinpath("megatron_vocabulary.json").read_text(encoding="utf-8")
)
_FLAVOURS: Final[tuple[Flavour, ...]] = get_args(Flavour)
OF_OPTIONS: Final = {
    flavour: Vocabulary(phrases={**_PHRASES["both"], **_PHRASES[flavour]}, by_batch=True) for flavour in _FLAVOURS
}
OF_CONFIGS: Final = Vocabulary(phrases=_PHRASES["DeepSpeed config"])
