"""The options that Megatron's parser gets from a front end, which starts it by options of its own.

The table of front ends says how they are spelt. Each word keeps its place on the launch line.
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
    {
        _LAYERS,
        "--hidden-size",
        "--ffn-hidden-size",
        "--num-attention-heads",
        "--kv-channels",
        "--group-query-attention",
        "--num-query-groups",
        "--multi-latent-attention",
        "--swiglu",
        "--num-experts",
        "--moe-layer-freq",
        "--moe-router-topk",
        "--moe-ffn-hidden-size",
        "--moe-shared-expert-intermediate-size",
        "--position-embedding-type",
        "--normalization",
        "--vocab-size",
        "--untie-embeddings-and-output-weights",
        "--mtp-num-layers",
        "--rotary-base",
        "--use-rotary-position-embeddings",
        "--disable-bias-linear",
        "--moe-grouped-gemm",
        "--moe-router-load-balancing-type",
        "--moe-router-score-function",
    }
)
#: An option in a text, with its value where that is a number.
_OPTION: Final = lazy_pattern(r"(?P<option>--[a-z0-9][a-z0-9-]*)(?: (?P<value>[0-9]+))?")
#: Options of Megatron's parser that only set another one. A front end that makes no command line
#: sets that one itself.
_OTHERWISE: Final = {
    "--recompute-granularity": ("--recompute-activations", "--checkpoint-activations")
}
#: A value, or one of a list: `["core_attn","mlp"]`.
_VALUE: Final = lazy_pattern(r"[\w.+-]+")
#: Values of explicit flags that turn them on.
_TRUE: Final = frozenset({"true", "yes", "1", "t", "y"})


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineWords:
    """The words that Megatron's parser gets, or would."""

    words: tuple[Word, ...]
    unsure: frozenset[str]  #: options of which it isn't known whether they are given


def engine_words(settings: Settings) -> EngineWords:
    """Megatron's words of a front end's: its own options are left out, with their values."""
    front_end = settings.front_end
    if front_end.becomes:
        sure = frozenset(
            name
            for short, option in front_end.becomes.items()
            if settings.get(short) is not None or settings.meets({short: "-"})
            for name in (option, *_OTHERWISE.get(option, ()))
        )
        unsure = frozenset(option_table(LM).rows) - sure
        return EngineWords(words=tuple(_of_settings(settings)), unsure=unsure)
    return _of_line(front_end, settings.launch.arguments)


def _of_line(front_end: FrontEnd, words: Sequence[Word]) -> EngineWords:
    """Megatron's words of a line on which a front end's options and Megatron's are mixed."""
    table = option_table(LM)
    engine_words, unsure = list[Word](), set(front_end.decides)
    value_by_name = dict[str, str | None]()  # of each option on the line
    for option, values in _options(words):
        name, _, attached = option.prefix.partition("=")
        engine_name = name.replace("_", "-") if front_end.explicit_flags else name
        engine_option = table.get(engine_name)
        if not name.startswith("--") or (engine_option is None and not front_end.may_have(name)):
            engine_words += (option, *values)  # unknown words stay, for the rules on them
            continue
        value_by_name[engine_name] = values[0].value if values else attached or ""
        unsure.discard(engine_name)
        if engine_option is None or name in front_end.renamed:
            continue
        if engine_option.kind == "flag" and front_end.explicit_flags:
            value = values[0].value if values else attached or "true"
            engine_words += _flag(option, engine_option, value)
            if value is None:
                unsure.add(engine_option.name)
        else:
            engine_words += (_renamed(option, engine_name, attached=bool(attached)), *values)

    if _LAYERS not in value_by_name:  # the checkpoint has the shape
        unsure |= _SHAPE - value_by_name.keys()
    for name, other in front_end.needs.items():
        if value_by_name.get(other, "1") == "1":
            engine_words = [word for word in engine_words if word.value != name]
    for name, replaced in front_end.replaces.items():
        if name in value_by_name:
            engine_words = list(_without(engine_words, frozenset(replaced)))
            unsure |= set(replaced)
    for name, default in front_end.defaults.items():
        if name not in value_by_name and name not in unsure:
            engine_words += _default(words, name, default)
    return EngineWords(words=tuple(engine_words), unsure=frozenset(unsure))


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
    """A text with the front end's spelling of each of Megatron's options in it."""
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
        word, setting, row = settings.word_of(short), settings.get(short), table.get(option)
        if setting is None or row is None:
            continue

        # A flag such as sequence parallelism has no effect where the degree that it needs is 1.
        other = shorts.get(front_end.needs.get(option, ""))
        degree = settings.get(other) if other is not None else None
        if row.kind == "flag":
            is_on = settings.meets({short: "true"}) and (degree is None or degree.number != 1)
            texts = [option] if is_on else []
        elif row.kind == "int":
            texts = [] if setting.number is None else [option, str(setting.number)]
        else:
            texts = [option, *_VALUE.findall(setting.text)]
        offset = word.offset if word is not None else 0
        for text in texts:
            yield Word(raw="", value=text, offset=offset, parts=(text,))


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


def _flag(option: Word, row: MegatronOption, value: str | None) -> tuple[Word, ...]:
    """A flag that is on; nothing where its value is false, or isn't known."""
    is_on = value is not None and value.lower() in _TRUE
    return (_renamed(option, row.name, attached=False),) if is_on else ()


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
