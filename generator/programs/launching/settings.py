"""The settings of a front end's launch, by short names, and counts that are made of them.

A short name stands for what several front ends call by names of their own, such as `tensor`. A
count is written as in the table of front ends: `"prompts samples / data"` is a product over another
product, `"prompt + response"` a sum. Its value is known where all its parts are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from itertools import pairwise, product
from math import prod
from pathlib import PurePosixPath
from typing import Final, NamedTuple

from ...dataclass import dataclass
from ...findings import Location, Version
from ...job.named_models import model_called
from ...numerals import is_whole, read_whole, whole
from ...patterns import lazy_pattern
from ...submission.launches import Launch
from ...text.shell.records import Word
from ...text.wording import counted
from ..pins import numbers
from ..python_around import release_for
from .front_end_copy import Copy, copy_of
from .front_ends import FrontEnd, front_ends, of_library
from .hydra_config import Defaults

#: What stands for the script's own arguments: nothing, where it is started without any.
_STARTED_WITH: Final = frozenset({"$@", "${@}", "$*", "${@:1}", "${@:2}", "${@:3}"})
#: An array with all its words.
_ARRAY: Final = lazy_pattern(r'"?\$\{(\w+)\[[@*]\]\}"?')
#: Builtins that fill an array with a command's output.
_FILLED_BY: Final = frozenset({"read", "mapfile", "readarray"})
#: How launches and YAML files write true.
_TRUE: Final = frozenset({"true", "1", "yes", "on"})
_FALSE: Final = frozenset({"false", "0", "no", "off"})
_MOST_VARIANTS: Final = 64  # values of settings together that branches give
#: Values that set nothing, `???` of OmegaConf among them.
_NONE: Final = frozenset({"null", "none", "~", "???"})
HEADS: Final = "heads"  #: in counts, those of the model
#: What is behind a model's name where it was trained further, with the same layers.
_SAME_SHAPE: Final = lazy_pattern(r"-(?:Instruct|Base|Chat|Thinking|it|hf)\Z", re.IGNORECASE)
RAY_GPUS: Final = "ray start --num-gpus"  #: the name of what starts Ray says of the cluster
#: Another node that joins Ray's cluster, whoever starts it.
_JOINS: Final = lazy_pattern(r"\bray[ \t]+start\b[^\n]*?--address")


#: A value of OmegaConf that is another key's, or a default: `${oc.select:actor.n,1}`.
_OF_ANOTHER: Final = lazy_pattern(r"\$\{(?:oc\.select:)?([A-Za-z][\w.]*)(?:,\s*([^{}]*))?\}")
_MOST_STEPS: Final = 8  # from key to key
#: Defaults of a setting with which a program does what it does without the setting.
_NEUTRAL: Final = frozenset({"0", "1", "false"})


_Place = Callable[[str], Location]


class _Written(NamedTuple):
    """What a launch line writes of one name."""

    text: str | None  #: the value; None where it isn't known
    word: Word  #: that has the name
    either: tuple[tuple[str, Word], ...] = ()  #: the values that branches give it, with their words
    tail: str = ""  #: the end of a path of which the folders aren't known

    @property
    def texts(self) -> tuple[tuple[str, Word], ...]:
        """The values that it may have, with their words; none where they aren't known."""
        return self.either if self.text is None else ((self.text, self.word),)


def _attached(word: Word) -> _Written:
    """What a word of the form `name=value` writes."""
    text = None if word.value is None else word.value.partition("=")[2]
    either = tuple((in_branch.partition("=")[2], word) for in_branch in word.either)
    return _Written(text, word, either, _tail_of(word))


def _tail_of(word: Word) -> str:
    """The end of a path of which only the folders are a variable: `$MODELS/Qwen3-8B`."""
    last = (word.parts[-1] if word.parts and word.value is None else None) or ""
    return last.rpartition("/")[2] if "/" in last else ""


def _as_option(option: Word, values: Sequence[Word]) -> _Written:
    """What an option writes with its values; without any, it is a flag."""
    if not values:
        return _Written("true", option)
    first, *more = values
    if not more:
        either = tuple((text, option) for text in first.either)
        return _Written(first.value, option, either, _tail_of(first))
    texts = [word.value for word in values]
    return _Written(None if None in texts else " ".join(filter(None, texts)), option)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """The value of one setting."""

    name: str  #: as the launch writes it, or would
    text: str
    where: Location | None = None  #: None: a default
    sign: str = " "  #: between name and value

    @property
    def number(self) -> int | None:
        """The number that it is, of a list of them the sum; None where it isn't one.

        The lists that launches have are counts by node.
        """
        counts = [read_whole(part.strip("'\"")) for part in self.text.split() or [""]]
        known_counts = [count for count in counts if count is not None]
        return sum(known_counts) if len(known_counts) == len(counts) else None

    def __str__(self) -> str:
        default = "" if self.where else " (the default)"
        return f"{self.name}{self.sign}{self.text}{default}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """The value of a count, and what it is made of."""

    value: int
    text: str  #: `--rollout-batch-size 32 × --n-samples-per-prompt 8 = 256`
    settings: tuple[Setting, ...]  #: those that are written on the launch


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings of one launch."""

    launch: Launch
    front_end: FrontEnd
    #: values that are taken in the place of written ones, by short name
    instead: Mapping[str, Setting | None] = field(default_factory=dict)

    @cached_property
    def _written(self) -> Mapping[str, _Written]:
        """The last value of each name on the line."""
        written = dict[str, _Written]()
        words, index = self.launch.arguments, 0
        while index < len(words):
            word, index = words[index], index + 1
            name, equals, _ = word.prefix.partition("=")
            if self.front_end.spelling == "keys" and equals and not name.startswith("-"):
                written[name.lstrip("+")] = _attached(word)
            elif name.startswith("-") and equals:
                written[name] = _attached(word)
            elif name.startswith("-"):
                # The next words are its values, up to one that is or holds options. Without any, it
                # is a flag.
                values = self._values_at(index)
                written[name] = _as_option(word, values)
                index += len(values)
            elif word.value is None and word.perhaps:
                written |= _of_branches(word, written)
            elif self._may_hide(word) and not _ARRAY.fullmatch(word.raw):
                # Such a word may set any name anew. Not an array, whose file isn't there: a line
                # doesn't write again what its arrays hold.
                written = {other: _Written(None, at.word) for other, at in written.items()}
        return written

    def _values_at(self, index: int) -> list[Word]:
        """The values of an option, which begin at a word of the line."""
        values, words = list[Word](), self.launch.arguments
        for at in range(index, len(words)):  # a slice would copy the rest for each option
            word = words[at]
            if self._holds_settings(word) or (values and not self._is_further_value(word)):
                break
            values.append(word)
        return values

    def _is_further_value(self, word: Word) -> bool:
        """Whether a word continues a list of values: `--num_learners_per_node 8 8`."""
        is_known = word.value is not None and not word.value.startswith("-")
        return is_known and self.front_end.spelling == "options"

    def _holds_settings(self, word: Word) -> bool:
        begun = word.prefix
        return (
            begun.startswith("--")
            or (self.front_end.spelling == "keys" and "=" in begun)
            or _ARRAY.fullmatch(word.raw) is not None
        )

    @cached_property
    def hides(self) -> bool:
        """Whether settings may be where they aren't read: in a word that isn't known, in a file, or
        below the end of a command that is cut.
        """
        before, has_unknown_word = "", False
        for word in self.launch.arguments:
            is_value = before.startswith("--") and "=" not in before
            is_value &= not self._holds_settings(word)
            has_unknown_word |= not is_value and self._may_hide(word)
            before = word.prefix
        is_elsewhere = has_unknown_word or self._has_other_defaults or self._is_in_file
        return is_elsewhere or self.launch.is_cut

    @property
    def _is_in_file(self) -> bool:
        """Whether the settings are in a file that the launch names, and it isn't that file."""
        return self.front_end.in_file and bool(self.launch.calls)

    def _may_hide(self, word: Word) -> bool:
        """Whether a word, of which nothing is known, may hold settings."""
        is_known = word.value is not None or any(word.parts)
        is_known |= bool(word.perhaps) and None not in word.perhaps
        is_of_call = word.raw.strip('"') in _STARTED_WITH
        return not (is_known or is_of_call or self._is_nothing(word))

    def _is_nothing(self, word: Word) -> bool:
        """Return whether a word holds no option: a command's output, or an array that nothing
        makes, which no environment has.
        """
        if word.raw.startswith(("$(", "`")):
            return True
        array = _ARRAY.fullmatch(word.raw)
        return array is not None and array[1] not in self._arrays and not self._sources_elsewhere

    @cached_property
    def _arrays(self) -> frozenset[str]:
        """The names that the script may give a value to."""
        script = self.launch.script
        words = (
            word.value
            for command in script.commands
            if command.words[0].value not in _FILLED_BY
            for word in command.words
        )
        assigned = (assignment.name for assignment in script.assignments)
        return frozenset((*assigned, *filter(None, words)))

    @cached_property
    def _sources_elsewhere(self) -> bool:
        """Whether the script sources a file that isn't there."""
        script = self.launch.script
        read = {PurePosixPath(text.path).name for _, text in script.followed}
        sourced = (
            command.words[1].path
            for command in script.commands
            if len(command.words) > 1 and command.words[0].value in ("source", ".")
        )
        return any(path is None or PurePosixPath(path).name not in read for path in sourced)

    @cached_property
    def _has_other_defaults(self) -> bool:
        """Whether the defaults aren't the table's: the launch names another config than the
        program's own, or starts another program than those whose settings these are.
        """
        front_end = self.front_end
        if front_end.reads and self.program not in front_end.reads:
            return True
        written = [self._written.get(name) for name in front_end.configs.get("options", ())]
        configs = [config.text for config in written if config is not None]
        own_configs = front_end.configs.get("own", ())
        return any(config is None or config not in own_configs for config in configs)

    @cached_property
    def program(self) -> str:
        """The name of the module or script that is started."""
        word = self.launch.program
        text = (word.parts[-1] or "") if word is not None and word.parts else ""
        if self.front_end.launched_by and self.launch.front_end:
            return self._subcommand
        return PurePosixPath(text).name

    @property
    def _subcommand(self) -> str:
        """The word behind the front end's own name: `grpo` of `trl grpo`."""
        words, program = self.launch.calls[-1].command.words, self.launch.program
        after = (word for before, word in pairwise(words) if before is program)
        word = next(after, None)
        return (word.value or "") if word is not None else ""

    def get(self, short: str) -> Setting | None:
        """The setting of a short name; None where it can't be known, or nothing sets it."""
        entry = self.front_end.settings[short]
        names: list[str] = entry["names"]
        if short in self.instead:
            return self.instead[short]

        for name in names:
            if name == RAY_GPUS:
                return self._gpus_of_ray()
            if name.isupper():
                assignment = self.launch.environment.get(name)
                if assignment is not None:
                    where = self.launch.script.locate(assignment)
                    value = assignment.value
                    return None if value is None else Setting(name=name, text=value, where=where)
            elif name in self._written:
                written = self._written[name]
                return self._setting(name, written.text, written.word)

        return self._default(entry, names)

    def _gpus_of_ray(self) -> Setting | None:
        """The GPUs of the only node on which the script starts Ray; None where others may join."""
        script = self.launch.script
        if any(_JOINS.search(text.content.replace("\\\n", " ")) for text in script.texts):
            return None
        heads = [
            command.words
            for command in script.commands
            if [word.value for word in command.words[:2]] == ["ray", "start"]
            and any(word.value == "--head" for word in command.words)
        ]
        if len(heads) != 1:
            return None
        (head,) = heads
        for word, after in zip(head, (*head[1:], None), strict=True):
            name, equals, _ = word.prefix.partition("=")
            if name in ("--num-gpus", "--num_gpus"):
                values = [after] if after else []
                written = _attached(word) if equals else _as_option(word, values)
                return self._setting(RAY_GPUS, written.text, word)
        return None

    def _setting(self, name: str, text: str | None, word: Word) -> Setting | None:
        """A setting that the line writes; None where its value isn't known, or none."""
        if text is None or text.strip("'\"").lower() in _NONE:
            return None
        where = self.launch.script.locate(word)
        return Setting(name=name, text=text, where=where, sign=self._sign)

    @property
    def _sign(self) -> str:
        if self.front_end.in_file and not self.launch.calls:
            return ": "
        return "=" if self.front_end.spelling == "keys" else " "

    def options(self) -> Iterator[tuple[str, Word]]:
        """Every option that the line writes, with its word; of a file each of its own keys."""
        is_file = not self.launch.calls
        for name, written in self._written.items():
            if name.startswith("--") and len(name) > 2:
                yield name, written.word
            elif is_file and "." not in name:
                yield f"--{name}", written.word
            elif not is_file and "." in name and not _adds(written.word, name):
                yield name, written.word

    def word_of(self, short: str) -> Word | None:
        """The word that writes a setting."""
        names = self.front_end.settings[short]["names"]
        return next((self._written[name].word for name in names if name in self._written), None)

    def _tail_of(self, short: str) -> str:
        """The end of a setting's path, of which only the folders aren't known."""
        names = self.front_end.settings[short]["names"]
        written = (self._written[name] for name in names if name in self._written)
        return next((setting.tail.rstrip("'\"") for setting in written), "")

    def variants(self, shorts: Iterable[str]) -> Iterator[Settings]:
        """These settings with each value that those of short names may have, as branches decide.

        Only these themselves where none of them depends on a branch, or too much does.
        """
        either = dict[str, list[Setting | None]]()
        for short in shorts:
            names = self.front_end.settings[short]["names"]
            name = next((name for name in names if name in self._written), None)
            written = None if name is None else self._written[name]
            if name is not None and written is not None and written.text is None and written.either:
                texts = dict(written.either)
                either[short] = [self._setting(name, text, word) for text, word in texts.items()]
        if not either or prod(map(len, either.values())) > _MOST_VARIANTS:
            yield self
            return
        for values in product(*either.values()):
            yield self.having(dict(zip(either, values, strict=True)))

    def having(self, instead: Mapping[str, Setting | None]) -> Settings:
        """The same launch with other values of some settings, by short name.

        What its words say is read once for all of them: hints try thousands of values.
        """
        other = replace(self, instead={**self.instead, **instead})
        for name in ("_written", "hides", "generation", "copy", "_config"):
            other.__dict__[name] = getattr(self, name)
        return other

    def shorts_in(self, *counts: str) -> Iterator[str]:
        """The short names of the settings that counts are made of."""
        for part in " ".join(counts).split():
            if part in self.front_end.counts:
                yield from self.shorts_in(self.front_end.counts[part])
            elif part in self.front_end.settings:
                yield part

    @cached_property
    def copy(self) -> Copy | None:
        """The copy of the front end that the repository carries."""
        return copy_of(self.launch, self.front_end)

    @cached_property
    def _config(self) -> Defaults | None:
        """The values of the copy's own config."""
        if self.copy is None or self.front_end.spelling != "keys":
            return None
        texts = {name: written.text or "" for name, written in self._written.items()}
        groups = {name: text for name, text in texts.items() if text and name.isidentifier()}
        return self.copy.defaults(texts.get("--config-name", ""), groups)

    def is_key_of_copy(self, name: str) -> bool | None:
        """Whether a key is in the config of the copy; None where that isn't known."""
        if self._config is None:
            return None
        return True if name in self._config.values else False if self._config.lacks(name) else None

    def lacks_key(self, short: str) -> bool:
        """Whether the line sets a setting by a key that the copy surely lacks, and doesn't add."""
        names = (name for name in self.front_end.settings[short]["names"] if name in self._written)
        return any(
            "." in name
            and self.is_key_of_copy(name) is False
            and not _adds(self._written[name].word, name)
            for name in names
        )

    def _value_in_copy(self, name: str) -> str | None:
        """The value of a key of the copy's config as text; None where it is null or isn't known."""
        values = {} if self._config is None else self._config.values
        for _ in range(_MOST_STEPS):
            if name in self._written:
                return self._written[name].text
            value = values.get(name)
            reference = _OF_ANOTHER.fullmatch(value) if isinstance(value, str) else None
            if reference is None:
                break
            name = reference[1]
            if name not in values and name not in self._written:
                value = reference[2]
                break
        else:
            return None
        text = str(value).lower() if isinstance(value, bool) else str(value)
        is_known = value is not None and text.lower() not in _NONE and "${" not in text
        return text if is_known else None

    def _default_in_copy(self, entry: Mapping[str, object], names: list[str]) -> Setting | None:
        """The default of a setting by the copy's own config.

        Of one that the copy lacks it is the table's, if that is as good as no such setting.
        """
        name = next((name for name in names if self.is_key_of_copy(name)), None)
        if name is not None:
            text = self._value_in_copy(name)
            return None if text is None else Setting(name=name, text=text, sign=self._sign)
        default = entry.get("default")
        if isinstance(default, str) and default.startswith("="):
            return self.get(default[1:])
        is_neutral = str(default).lower() in _NEUTRAL
        return Setting(name=names[0], text=str(default), sign=self._sign) if is_neutral else None

    def _may_be_set_in_copy(self, names: Iterable[str]) -> bool:
        """Whether the copy's config may set one of these keys."""
        values = {} if self._config is None else self._config.values
        return any(str(values[name]).lower() not in _NONE for name in names if name in values)

    def _default(self, entry: Mapping[str, object], names: list[str]) -> Setting | None:
        default = entry.get("default")
        is_known = any("." in name and self.is_key_of_copy(name) is not None for name in names)
        if default is not None and is_known:
            return None if self.hides else self._default_in_copy(entry, names)
        if isinstance(default, dict):
            default = self._default_of_release(default, entry.get("where"))
        if isinstance(default, list):  # of releases with other names
            default = default[min(self.generation, len(default) - 1)]
        if default is None or self.hides:
            return None
        if isinstance(default, str) and default.startswith("="):
            return self.get(default[1:])
        name = names[min(self.generation, len(names) - 1)]
        return Setting(name=name, text=str(default), sign=self._sign)

    def _default_of_release(self, since: Mapping[str, object], where: object) -> object:
        """The default of the release that runs, of those by the first release that has each.

        None where that isn't known, or where the settings aren't as one of `where` says.
        """
        if not any(self.meets(each) for each in (where if isinstance(where, list) else [{}])):
            return None
        newest_first = sorted(since, key=numbers, reverse=True)

        def default_in(version: Version) -> object:
            having = (first for first in newest_first if version >= numbers(first))
            return since.get(next(having, ""))

        release = release_for(self.front_end.program, self.place.path, [self.launch])
        default = default_in(release.version)
        is_certain = release.certain(lambda version: default_in(version) == default)
        return default if is_certain else None

    @cached_property
    def generation(self) -> int:
        """Which of several names the launch uses, from 0: they are those of releases."""
        return self.front_end.generation_of(self._written)

    @property
    def starts_the_engine(self) -> bool:
        """Whether it surely starts the engine whose options the row has."""
        return self.meets(self.front_end.where)

    @property
    def starts_another(self) -> bool:
        """Whether it surely starts another engine than that."""
        if not self.front_end.engine and self.front_end.otherwise:
            return True
        shorts = [short for short in self.front_end.where if short != "program"]
        is_known = bool(shorts) and all(self.get(short) is not None for short in shorts)
        return is_known and not self.starts_the_engine

    @property
    def is_judged(self) -> bool:
        """Whether identities are asked of it, and no engine is left that isn't read."""
        return bool(self.front_end.identities) and not self.hides and self.starts_the_engine

    @property
    def is_judged_in_part(self) -> bool:
        """Whether identities are asked of it, though the engine that it starts isn't read."""
        return bool(self.front_end.identities) and not self.hides and self.starts_another

    @property
    def place(self) -> Location:
        """The place of the program."""
        program = self.launch.program
        return self.launch.script.locate(program or self.launch.calls[0].word)

    def meets(self, conditions: Mapping[str, str]) -> bool:
        """Return whether settings surely are as wanted: `true`, `a|b`, `!0`, `*` for written,
        `-` for not set.
        """
        return all(self._is(short, wanted) for short, wanted in conditions.items())

    def _is(self, short: str, wanted: str) -> bool:
        if short == "program":
            return (self.program in wanted.lstrip("!").split("|")) != wanted.startswith("!")
        setting = self.get(short)
        if wanted == "-" and short in self.instead:
            return setting is None
        if wanted == "-":
            names = self.front_end.settings[short]["names"]
            is_written = any(name in self._written for name in names)
            return not (self.hides or is_written or self._may_be_set_in_copy(names))
        if setting is None:
            return False
        if wanted == "*":
            return setting.where is not None
        text = setting.text.strip("'\"").lower()
        texts = {text}
        if text in _TRUE:
            texts = {"true"}
        elif text in _FALSE:
            texts = {"false"}
        if text in ("0", "1"):  # which are numbers as well
            texts.add(text)
        is_among = bool(texts & set(wanted.lstrip("!").split("|")))
        return is_among != wanted.startswith("!")

    def count(self, written: str) -> Counted | None:
        """The value of a count; None where a part isn't known, or it is no whole number."""
        parts = [self._term(term) for term in written.split(" + ")]
        terms = [term for term in parts if term is not None]
        if len(terms) < len(parts):
            return None
        if len(terms) == 1:
            return terms[0]
        value = sum(term.value for term in terms)
        text = " + ".join(term.text for term in terms)
        settings = tuple(setting for term in terms for setting in term.settings)
        return Counted(value=value, text=f"{text} = {value}", settings=settings)

    def _term(self, written: str) -> Counted | None:
        """The value of a product, over another or not; None where it isn't known or not whole."""
        above, _, below = written.partition(" / ")
        factors, divisors = self._factors(above), self._factors(below)
        if factors is None or divisors is None:
            return None

        divisors = [divisor for divisor in divisors if divisor.value != 1]
        numerator = prod(factor.value for factor in factors)
        denominator = prod(divisor.value for divisor in divisors)
        if not denominator or numerator % denominator:
            return None
        value = numerator // denominator
        # Defaults of 1 change nothing, and aren't shown.
        counting = [factor for factor in factors if factor.value != 1 or factor.settings]
        shown = counting or factors[:1]
        text = " × ".join(factor.text for factor in shown)
        text += "".join(f" ÷ {divisor.text}" for divisor in divisors)
        text += f" = {value}" if len(shown) + len(divisors) > 1 else ""
        settings = tuple(setting for part in (*factors, *divisors) for setting in part.settings)
        return Counted(value=value, text=text, settings=settings)

    def _heads(self) -> Counted | None:
        """The attention heads of the model, where its name is that of one in the catalog."""
        model = self.get("model")
        path = self._tail_of("model") if model is None else model.text.strip("'\"").rstrip("/")
        name = _SAME_SHAPE.sub("", path)
        named = model_called(name) if name else None
        if named is None or not named.attentions:
            return None
        return Counted(value=named.heads, text=f"{named.heads} heads of {named.name}", settings=())

    def _factors(self, written: str) -> list[Counted] | None:
        """The factors of a product; None where the value of one isn't known."""
        factors = [self._factor(name) for name in written.split()]
        known_factors = [factor for factor in factors if factor is not None]
        return known_factors if len(known_factors) == len(factors) else None

    def _factor(self, name: str) -> Counted | None:
        """A number, the model's heads, a count by its name, or a setting."""
        if is_whole(name):
            return Counted(value=whole(name), text=name, settings=())
        if name == HEADS:
            return self._heads()
        if name in self.front_end.counts:
            count = self.count(self.front_end.counts[name])
            if count is None:
                return None
            text = counted(count.value, name.removesuffix("s").replace("_", " "))
            return replace(count, text=text)
        setting = self.get(name)
        number = None if setting is None else setting.number
        if setting is None or number is None or number < 1:
            return None
        written_settings = (setting,) if setting.where else ()
        return Counted(value=number, text=str(setting), settings=written_settings)


def _of_branches(word: Word, before: Mapping[str, _Written]) -> dict[str, _Written]:
    """What a word writes that differs by the branch: `${EXTRA}`, set or not."""
    written = dict[str, _Written]()
    for text in filter(None, word.perhaps):
        name, equals, value = text.partition("=")
        name = name.lstrip("+")
        # It has this value in one branch, in the others the one from before.
        at_name = written.get(name) or before.get(name)
        texts = at_name.texts if at_name is not None and equals else ()
        either = (*texts, (value, word)) if texts else ()
        written[name] = _Written(None, word, either)
    return written


def _adds(word: Word, name: str) -> bool:
    """Whether a word adds a key to a config, which need not be there: `+a.b=1`, in a branch too."""
    texts = word.perhaps or (word.prefix,)
    return any(text is not None and re.match(rf"\++{re.escape(name)}=", text) for text in texts)


def library_settings_of(
    launch: Launch, values: Mapping[str, object] | None = None, place: _Place | None = None
) -> Settings | None:
    """The settings of a launch whose script trains by a front end's classes, or is one's own.

    `values` are those of a file that the launch names, where it doesn't write them itself, and
    `place` tells where one of them is.
    """
    values = values or {}
    settings = settings_of(launch)
    if settings is None and launch.program is not None:
        options = (f"--{name}" for name in values)
        words = (Word(raw=name, value=name, offset=0, parts=(name,)) for name in options)
        front_end = of_library(launch.program, (*launch.arguments, *words))
        settings = None if front_end is None else Settings(launch=launch, front_end=front_end)
    if settings is None or not values or place is None:
        return settings

    instead = dict[str, Setting | None]()
    for short, entry in settings.front_end.settings.items():
        names = [name.lstrip("-") for name in entry["names"]]
        name = next((name for name in names if values.get(name) is not None), None)
        if name is not None and settings.word_of(short) is None:
            value = values[name]
            text = str(value).lower() if isinstance(value, bool) else str(value)
            instead[short] = Setting(name=name, text=text, where=place(name), sign=": ")
    if "config" in settings.front_end.settings:
        instead["config"] = None  # whose settings are known by now
    return settings.having(instead)


def settings_of(launch: Launch) -> Settings | None:
    """The settings of a front end's launch; None of others."""
    kept: dict[str, Settings | None] = launch.kept
    if "settings" not in kept:
        front_end = front_ends().get(launch.front_end)
        kept["settings"] = (
            None if front_end is None else Settings(launch=launch, front_end=front_end)
        )
    return kept["settings"]
