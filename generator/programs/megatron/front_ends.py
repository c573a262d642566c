"""Launches of programs that start Megatron with words of their own, as Megatron's words.

The table of front ends says how their words are spelt; words keep their places.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Final, Protocol

from ...dataclass import dataclass
from ...findings import Violation
from ...patterns import lazy_pattern
from ...text.shell.records import Word
from ..launching.front_ends import FrontEnd
from ..launching.settings import Settings
from .options import LM, MegatronOption, option_table

_LAYERS: Final = "--num-layers"
#: Options of a model's shape, which a front end reads from the model's own config.
_SHAPE: Final = frozenset(
    {_LAYERS, "--hidden-size", "--ffn-hidden-size", "--num-attention-heads", "--kv-channels"}
    | {"--group-query-attention", "--num-query-groups", "--multi-latent-attention", "--swiglu"}
    | {"--num-experts", "--moe-layer-freq", "--moe-router-topk", "--moe-ffn-hidden-size"}
    | {"--moe-shared-expert-intermediate-size", "--position-embedding-type", "--normalization"}
    | {"--vocab-size", "--untie-embeddings-and-output-weights", "--mtp-num-layers"}
    | {"--rotary-base", "--use-rotary-position-embeddings", "--disable-bias-linear"}
    | {"--moe-grouped-gemm", "--moe-router-load-balancing-type", "--moe-router-score-function"}
)
#: An option in a text, with its value where that is a number.
_OPTION: Final = lazy_pattern(r"(?P<option>--[a-z0-9][a-z0-9-]*)(?: (?P<value>[0-9]+))?")
#: Options of Megatron's parser that only set another one, which what makes no command line sets.
_OTHERWISE: Final = {
    "--recompute-granularity": ("--recompute-activations", "--checkpoint-activations")
}
#: A value, or one of a list: `["core_attn","mlp"]`.
_VALUE: Final = lazy_pattern(r"[\w.+-]+")
_TRUE: Final = frozenset({"true", "yes", "1", "t", "y"})


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineWords:
    """The words that Megatron's parser gets, or would."""

    words: tuple[Word, ...]
    unsure: frozenset[str]  #: options of which it isn't known whether they are given


def engine_words(settings: Settings) -> EngineWords:
    """Megatron's words of a front end's: its own options are left out, with their values."""
    front_end, words = settings.front_end, settings.launch.arguments
    table = option_table(LM)
    if front_end.becomes:
        sure = frozenset(
            name
            for short, option in front_end.becomes.items()
            if settings.get(short) is not None or settings.meets({short: "-"})
            for name in (option, *_OTHERWISE.get(option, ()))
        )
        return EngineWords(words=tuple(_of_settings(settings)), unsure=frozenset(table.rows) - sure)

    made, unsure, given = list[Word](), set(front_end.decides), dict[str, str | None]()
    for option, values in _options(words):
        name, _, attached = option.prefix.partition("=")
        engine_name = name.replace("_", "-") if front_end.explicit_flags else name
        option_of_engine = table.get(engine_name)
        if not name.startswith("--") or (option_of_engine is None and not front_end.may_have(name)):
            made += (option, *values)  # unknown words stay, for the rules on them
            continue
        given[engine_name] = values[0].value if values else attached or ""
        unsure -= {engine_name}
        if option_of_engine is None or name in front_end.renamed:
            continue
        if option_of_engine.kind == "flag" and front_end.explicit_flags:
            value = values[0].value if values else attached or "true"
            made += _flag(option, option_of_engine, value)
            unsure |= {option_of_engine.name} if value is None else set()
        else:
            made += (_renamed(option, engine_name, attached=bool(attached)), *values)

    if _LAYERS not in given:  # the checkpoint has the shape
        unsure |= _SHAPE - given.keys()
    for name, other in front_end.needs.items():
        if given.get(other, "1") == "1":
            made = [word for word in made if word.value != name]
    for name, replaced in front_end.replaces.items():
        if name in given:
            made = list(_without(made, frozenset(replaced)))
            unsure |= set(replaced)
    for name, value in front_end.defaults.items():
        if name not in given and name not in unsure:
            made += _default(words, name, value)
    return EngineWords(words=tuple(made), unsure=frozenset(unsure))


class _Started(Protocol):
    """A run, or what else may be started by a front end."""

    @property
    def front_end(self) -> FrontEnd | None: ...


def in_its_words(run: _Started, violation: Violation) -> Violation:
    """A violation with the options of the front end that starts the run in place of Megatron's."""
    front_end = run.front_end
    if front_end is None or not (front_end.explicit_flags or front_end.becomes):
        return violation
    hint = violation.hint
    return replace(
        violation,
        message=_spelt(front_end, violation.message),
        hint=None if hint is None else _spelt(front_end, hint),
    )


def _spelt(front_end: FrontEnd, text: str) -> str:
    names = {
        option: front_end.settings[short]["names"][0] for short, option in front_end.becomes.items()
    }

    def spelt(match: re.Match[str]) -> str:
        option, value = match["option"], match["value"]
        if option in names:
            return f"{names[option]}={value}" if value else names[option]
        if front_end.explicit_flags and option_table(LM).get(option) is not None:
            return f"--{option[2:].replace('-', '_')}{' ' + value if value else ''}"
        return match[0]

    return _OPTION.sub(spelt, text)


def _of_settings(settings: Settings) -> Iterator[Word]:
    """Megatron's options, each at the place of the setting that becomes it."""
    front_end, table = settings.front_end, option_table(LM)
    shorts = {option: short for short, option in front_end.becomes.items()}
    for short, option in front_end.becomes.items():
        word, setting, known = settings.word_of(short), settings.get(short), table.get(option)
        if setting is None or known is None:
            continue

        other = shorts.get(front_end.needs.get(option, ""))
        degree = settings.get(other) if other is not None else None
        if known.kind == "flag":
            is_on = settings.meets({short: "true"}) and (degree is None or degree.number != 1)
            texts = [option] if is_on else []
        elif known.kind == "int":
            texts = [] if setting.number is None else [option, str(setting.number)]
        else:
            texts = [option, *_VALUE.findall(setting.text)]
        at = word.offset if word is not None else 0
        for text in texts:
            yield Word(raw="", value=text, offset=at, parts=(text,))


def _options(words: Sequence[Word]) -> Iterator[tuple[Word, tuple[Word, ...]]]:
    """Each option with the words behind it up to the next one; other words by themselves."""
    index = 0
    while index < len(words):
        option = words[index]
        index += 1
        if not option.prefix.startswith("--"):
            yield option, ()
            continue
        values = tuple(takewhile(lambda word: not word.prefix.startswith("--"), words[index:]))
        index += len(values)
        yield option, values


def _flag(option: Word, known: MegatronOption, value: str | None) -> tuple[Word, ...]:
    """A flag that is on; nothing where its value is false, or isn't known."""
    is_on = value is not None and value.lower() in _TRUE
    return (_renamed(option, known.name, attached=False),) if is_on else ()


def _renamed(option: Word, name: str, *, attached: bool) -> Word:
    """An option by Megatron's name, at its own place; a value that is attached stays."""
    if not attached:
        return option._replace(value=name, parts=(name,))
    behind = option.prefix.partition("=")[2]
    text = f"{name}={behind}"
    value = None if option.value is None else text
    return option._replace(value=value, parts=(text, *option.parts[1:]))


def _without(words: Sequence[Word], names: frozenset[str]) -> Iterator[Word]:
    for option, values in _options(words):
        if option.prefix.partition("=")[0] not in names:
            yield option
            yield from values


def _default(words: Sequence[Word], name: str, value: str) -> tuple[Word, ...]:
    """An option that the front end sets itself, at the place of the first word."""
    at = words[0].offset if words else 0
    return tuple(Word(raw="", value=text, offset=at, parts=(text,)) for text in (name, value))
