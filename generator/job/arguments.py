"""The words of a command line as the options that a program's parser finds in them.

An example is `launch.arguments`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple, TypeVar

from ..numerals import is_whole
from ..patterns import lazy_pattern

_Word = TypeVar("_Word")
#: A word that sets a key of a config: `train.train_iters=500`, as Hydra has it.
_OVERRIDE: Final = lazy_pattern(r"\+{0,2}([A-Za-z_]\w*(?:\.\w+)*)=(.*)", re.ASCII | re.DOTALL)

_MODULE: Final = lazy_pattern(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+", re.ASCII)
#: Endings of files that Python or a shell runs.
_FILES: Final = frozenset({"py", "pyc", "pyz", "pyw", "pex", "par", "xar", "zip", "sh", "bash"})


class Option(NamedTuple):
    """An option with its values."""

    key: str  #: as `key_of` has it
    written: str
    at: int  #: the index of its word
    values: tuple[str, ...]


def key_of(option: str) -> str:
    """The name of an option, which HfArgumentParser takes with dashes as with underscores.

    Other parsers have one spelling, and no second option in the other. **Source**:
    huggingface/transformers hf_argparser.py @ 5.23.
    """
    return option.partition("=")[0].replace("_", "-")


def is_module_name(program: str) -> bool:
    """Return whether a program's name is that of a module, `trl.scripts.grpo`, and of no file."""
    return bool(_MODULE.fullmatch(program)) and program.rpartition(".")[2].lower() not in _FILES


def is_option(word: object) -> bool:
    """Return whether a word begins an option, and is no negative number."""
    return (
        isinstance(word, str)
        and word[:1] == "-"
        and len(word) > 1
        and not is_whole(word[1])
        and word[1] != "."
    )


def grouped(words: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Each option with the words that follow it.

    A word before the first option is a group of its own, and one behind `--option=value` too.
    """
    group: list[str] = []
    for word in words:
        if is_option(word) or not group or not is_option(group[0]) or "=" in group[0]:
            if group:
                yield tuple(group)
            group = []
        group.append(word)
    if group:
        yield tuple(group)


@lru_cache(maxsize=64)
def options_of(words: tuple[str, ...]) -> tuple[Option, ...]:
    """The options among words, in order."""
    groups, index = [], 0
    for first, *rest in grouped(words):
        written, equals, value = first.partition("=")
        if is_option(first):
            groups.append(
                Option(key_of(first), written, index, (value,) if equals else tuple(rest))
            )
        index += 1 + len(rest)
    return tuple(groups)


def overrides_of(words: Iterable[object]) -> Mapping[str, str]:
    """The keys of a config that words set, as in `train.train_iters=500`; the last word counts."""
    matches = (_OVERRIDE.fullmatch(str(word)) for word in words)
    return {match[1]: match[2] for match in matches if match is not None}


def argument_values(words: Iterable[object], *names: str) -> tuple[str, ...] | None:
    """The values of the last option of one of these names, which is the one that counts.

    A name without a dash is a config's key, which a word such as `train.train_iters=500` sets.
    `None` where there is none.
    """
    read = tuple(map(str, words))
    keys = {key_of(name) for name in names if name.startswith("-")}
    options = [option for option in options_of(read) if option.key in keys]
    if options:
        return options[-1].values
    if len(keys) == len(names):
        return None
    values = [value for name, value in overrides_of(read).items() if name in names]
    return (values[-1],) if values else None


def gives(words: Iterable[object], *names: str) -> bool:
    """Return whether an option of one of these names is among words."""
    return argument_values(words, *names) is not None


def without(words: Iterable[_Word], names: Iterable[str]) -> Iterator[_Word]:
    """The words but for options of these names and their values."""
    keys, left_out = {key_of(name) for name in names}, False
    for word in words:
        if is_option(word):
            left_out = key_of(str(word)) in keys
        if not left_out:
            yield word


def is_fine_tuning(start: object, words: Iterable[object]) -> bool:
    """Return whether a job goes on from trained weights.

    It does with a `start`, which is adapters or a folder of weights, or by `--model_name_or_path`
    of its script.

    Such runs have no weight decay by default, a rate of 2e-5 for all weights, and a second beta of
    0.999. Source: TrainingArguments; Alpaca's (tatsu-lab/stanford_alpaca README) and QLoRA's
    (arXiv:2305.14314) recipes.
    """
    return start is not None or gives(words, "--model_name_or_path")
