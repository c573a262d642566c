"""The words of a command line, such as `launch.arguments`, as a program's parser reads them."""

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
    if not isinstance(word, str) or len(word) < 2 or word[0] != "-":
        return False
    is_number = is_whole(word[1]) or word[1] == "."
    return not is_number


def grouped(words: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Each option with the words that follow it.

    A word before the first option is a group of its own, and one behind `--option=value` too.
    """
    group: list[str] = []
    for word in words:
        takes_values = bool(group) and is_option(group[0]) and "=" not in group[0]
        if group and (is_option(word) or not takes_values):
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
            values = (value,) if equals else tuple(rest)
            groups.append(Option(key_of(first), written, index, values))
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
    texts = tuple(map(str, words))
    keys = {key_of(name) for name in names if name.startswith("-")}
    options = [option for option in options_of(texts) if option.key in keys]
    if options:
        return options[-1].values
    if len(keys) == len(names):  # no name is a config's key
        return None
    values = [value for name, value in overrides_of(texts).items() if name in names]
    return (values[-1],) if values else None


def gives(words: Iterable[object], *names: str) -> bool:
    """Return whether an option of one of these names is among words."""
    return argument_values(words, *names) is not None


def without(words: Iterable[_Word], names: Iterable[str]) -> Iterator[_Word]:
    """The words but for options of these names and their values."""
    keys, is_left_out = {key_of(name) for name in names}, False
    for word in words:
        if is_option(word):
            is_left_out = key_of(str(word)) in keys
        if not is_left_out:
            yield word


def is_fine_tuning(start: object, words: Iterable[object]) -> bool:
    """Return whether a job goes on from trained weights.

    It does with a `start` (adapters, or a folder of weights), or by `--model_name_or_path` of its
    script. Such runs have no weight decay by default, a rate of 2e-5 for all weights, and a second
    beta of 0.999. Source: TrainingArguments; Alpaca's (tatsu-lab/stanford_alpaca README) and
    QLoRA's (arXiv:2305.14314) recipes.
    """
    return start is not None or gives(words, "--model_name_or_path")
