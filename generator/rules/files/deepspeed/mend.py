"""Changes that mend a DeepSpeed config, where there is one safe answer; computed when they are wanted."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from ....documents.deepspeed_config import Config
from ....documents.hjson.edits import move_member, remove_member, rename_key, replace_value
from ....documents.hjson.text import JsonText
from ....findings import Edit

Mend = Callable[[JsonText], tuple[Edit, ...]]

#: Finding a safe change may read the text again; in one that nobody wrote by hand that takes too long.
_MOST_CHARACTERS: Final = 200_000


def mended(config: Config, mend: Mend | None) -> tuple[Edit, ...]:
    """The edits that mend a config of its own file; none for what a script writes."""
    if mend is None or config.embedded or len(config.json.text.content) > _MOST_CHARACTERS:
        return ()
    return mend(config.json)


def taken_out(pointer: str) -> Mend:
    """The member goes."""
    return partial(remove_member, pointer=pointer)


def moved(pointer: str, section: str, name: str) -> Mend:
    """The member goes to the end of another object."""
    return partial(move_member, pointer=pointer, parent_pointer=section, name=name)


def written(pointer: str, value: object) -> Mend:
    """The value becomes another."""
    return partial(replace_value, pointer=pointer, value=value)


def renamed(pointer: str, name: str) -> Mend:
    """The key becomes another."""
    return partial(rename_key, pointer=pointer, name=name)


def rewritten(pointer: str, name: str, value: object) -> Mend:
    """Key and value become others."""

    def mend(doc: JsonText) -> tuple[Edit, ...]:
        key_edits, value_edits = rename_key(doc, pointer, name), replace_value(doc, pointer, value)
        return (*key_edits, *value_edits) if key_edits and value_edits else ()

    return mend
