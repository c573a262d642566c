"""JSON pointers (RFC 6901) into plain data, and how keys and values are written in messages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from typing import Any, Final

from ..dataclass import dataclass
from ..findings import escape as escape
from ..findings import printable
from ..numerals import is_whole, read_whole
from ..places import NOTHING as NOTHING

LONGEST_SHOWN: Final = 60  #: characters of a value in a message


def dots(version: Iterable[int]) -> str:
    """A version as one writes it: `0.19.8`."""
    return ".".join(map(str, version))


def with_article(noun: str) -> str:
    """A noun behind `a` or `an`, by its first letter."""
    return f"{'an' if noun[:1].lower() in set('aeiou') else 'a'} {noun}"


def whole_number(value: object) -> int | None:
    """An integer, which true and false are not."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def value_at(data: object, pointer: str, default: object = None) -> object:
    """Return the value at a JSON pointer in plain data; `default` where there is none."""
    escaped = "~" in pointer
    for part in pointer.split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~") if escaped else part
        index = read_whole(key) if isinstance(data, list) else None
        if isinstance(data, dict) and key in data:
            data = data[key]
        elif isinstance(data, list) and index is not None and index < len(data):
            data = data[index]
        else:
            return default
    return data


def walk(pointer: str, value: object) -> Iterator[tuple[str, object]]:
    """Every value with its pointer, in file order.

    There is no recursion, as aliases can nest deeply.
    """
    stack = [(pointer, value)]
    while stack:
        pointer, value = stack.pop()
        yield pointer, value
        if isinstance(value, Mapping):
            stack.extend((f"{pointer}/{escape(key)}", value[key]) for key in reversed(list(value)))
        elif isinstance(value, list):
            stack.extend(
                (f"{pointer}/{index}", value[index]) for index in reversed(range(len(value)))
            )


def leaves(value: object) -> Iterator[object]:
    """Every value that holds no others, in no order."""
    stack = [value]
    while stack:
        value = stack.pop()
        if isinstance(value, dict):
            stack.extend(value.values())
        elif isinstance(value, list):
            stack.extend(value)
        else:
            yield value


def dotted(pointer: str) -> str:
    """A JSON pointer as people write it: `training.global_batch`, `launch.arguments[2]`."""
    name = ""
    for part in pointer.split("/")[1:]:
        plain = printable(part.replace("~1", "/").replace("~0", "~"))
        if is_whole(plain):
            name += f"[{plain}]"
        else:
            name += f".{plain}" if name else plain
    return name or "the job spec"


def counted(number: int, noun: str) -> str:
    """A number with its noun: `1 host`, `2 hosts`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def show(value: object) -> str:
    """A value in a message: short, and text as text."""
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, bool):
        return str(value).lower()
    if value is None:
        return "empty"
    if isinstance(value, str):
        return repr(shortened(value))
    return str(value)


def shortened(text: str) -> str:
    """A text with its end left out, where it is longer than a message has room for."""
    return text if len(text) <= LONGEST_SHOWN else f"{text[: LONGEST_SHOWN - 3]}..."


def kind_in_words(value: object) -> str:
    """Name the kind of a value, and not the value.

    A file that isn't what it should be may be private.
    """
    if isinstance(value, str):
        return "text"
    if type(value) in (int, float):
        return "a number"
    return show(value)


def listed(values: Iterable[object]) -> str:
    """`1`, `1 or 2`, `1, 2 or 4`.

    Raises `ValueError` without a value: the caller says what holds then.
    """
    words = [str(value) for value in values]
    if not words:
        raise ValueError("there is nothing to list")
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Vocabulary:
    """Words for the keys of a job and their values.

    Where there is no other phrase, they are those of a job spec.
    """

    #: Phrases with `{}` for the values, by key: `{"tensor": "--tensor-model-parallel-size {}"}`.
    #: A value may have a phrase of its own: `{"offload: none": "no offload"}`. `one` and a key are
    #: for the value 1, `without` and a key for what to do to switch something off.
    phrases: Mapping[str, str] = field(default_factory=dict)
    #: whether micro-batches are set by the global batch, without a key of their own
    by_batch: bool = False

    def says(self, key: str, *values: object) -> str:
        """A key with a value, or with a choice of values: `tensor: 3`, `tensor: 1, 2 or 4`."""
        shown = [in_spec(value) for value in values]
        if any(f"{key}: {value}" in self.phrases for value in shown):
            return listed(self._one(key, value) for value in shown)
        return self._one(key, listed(shown))

    def without(self, key: str) -> str:
        """Say how to switch a key off, in a reader's terms.

        Examples are `use sequence_parallel: false` and `remove --sequence-parallel`.
        """
        return self.phrases.get(f"without {key}", f"use {self.says(key, False)}")

    def micro_batches(self, counts: Iterable[int], layout: Any) -> str:
        """Numbers of a layout's micro-batches, over all replicas, as the key that sets them."""
        if self.by_batch:
            return self.says(
                "global_batch", *(count * layout.micro_batch * layout.data for count in counts)
            )
        return self.says("gradient_accumulation", *counts)

    def _one(self, key: str, value: str) -> str:
        if value == "1" and f"one {key}" in self.phrases:
            return self.phrases[f"one {key}"]
        phrase = self.phrases.get(f"{key}: {value}", self.phrases.get(key, f"{key}: {{}}"))
        return phrase.replace("{}", value)


def in_spec(value: object) -> str:
    """A value as a job spec writes it: `true`, `8`, `full`, `[core_attn, mlp]`."""
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(str, value))}]"
    if isinstance(value, bool):
        return str(value).lower()
    return str(getattr(value, "label", value))  # an enumeration's member has a label


#: The vocabulary of job specs.
OF_SPECS: Final = Vocabulary()
