"""Which words of a front end's line go to the launcher that starts its ranks.

**Source**: huggingface/trl trl/cli/commands/training.py, accelerate_config.py @ f2cd5771: what its
own parser doesn't take is `accelerate launch`'s, and `--accelerate_config` is its `--config_file`,
or the name of a file of TRL's own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...text.shell.records import Word
from .front_ends import FrontEnd
from .tables import TABLES


def split_off_launcher(
    front_end: FrontEnd, words: Sequence[Word]
) -> tuple[list[Word], tuple[Word, ...]]:
    """The launcher's options among words, named files of options first, and all other words."""
    options = TABLES[front_end.launched_by].options
    of_profile, of_launcher, rest = list[Word](), list[Word](), list[Word]()
    index = 0
    while index < len(words):
        word, index = words[index], index + 1
        name, equals, _ = word.prefix.partition("=")
        is_profile = name == front_end.profiles.get("option") and not equals
        option = None if name in front_end.takes else options.get(name)
        if is_profile and index < len(words):
            of_profile, index = list(_of_profile(front_end, word, words[index])), index + 1
        elif option is None or not name.startswith("--"):
            rest.append(word)
        else:
            has_value = bool(option.values) and not equals and index < len(words)
            of_launcher += (word, words[index]) if has_value else (word,)
            index += has_value
    return [*of_profile, *of_launcher], tuple(rest)


def _of_profile(front_end: FrontEnd, option: Word, value: Word) -> Iterator[Word]:
    """The launcher's options that stand for a file: what one of the front end's own files says, or
    the launcher's option for another file and its path.
    """
    options_of_file: str | None = front_end.profiles["names"].get(value.value)
    if options_of_file is None:
        name = front_end.profiles["file"]
        yield option._replace(value=name, parts=(name,))
        yield value
        return
    for text in options_of_file.split():
        yield value._replace(value=text, parts=(text,))
