"""Subjects of the rules on DeepSpeed configs, and the words and fixes that they share."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final, NamedTuple, TypeGuard

from ....findings import Edit, Severity, Violation, Violations, printable
from ....patterns import lazy_pattern
from ....rules.violations import divisors, listed, violation
from ....submission.subjects import Subject
from ....submission.submission import Submission
from ....submission.world import World, world_of
from ....text.hjson.edits import remove_member, replace_value
from ....text.hjson.text import JsonText
from ....text.wording import NOTHING, dotted
from ...python_around import tells
from ..config import PARAMS, Config
from ..schema import Section
from ..submission import configs_of

#: DeepSpeed configs, those that could not be read to their end included.
ds_configs: Final = Subject[Config](
    ("DeepSpeed config",), lambda submission: configs_of(submission)
)

FILL: Final = "fill the template in before the job starts; DeepSpeed expands no variables"
#: `${STAGE}`, `{{ stage }}`, `<STAGE>`, `%(stage)s`, `@STAGE@`, `ZERO_STAGE`.
_PLACEHOLDER: Final = lazy_pattern(
    r"\$\{?[A-Za-z_]\w*\}?|\{\{.*\}\}|\{%.*%\}|<[A-Za-z_][\w -]*>|%\(\w+\)s|@\w+@|"
    r"[A-Z][A-Z0-9]*(?:_[A-Za-z0-9]+)+",
    re.ASCII,
)


def is_placeholder(value: object) -> TypeGuard[str]:
    """Whether a value looks like a template's variable.

    hjson reads text without quotes up to its line's end, the comma included.
    """
    return isinstance(value, str) and _PLACEHOLDER.fullmatch(value.strip().rstrip(",")) is not None


def is_variable(value: object) -> bool:
    """Whether text in place of a number names a template's variable, such as GBSIZE."""
    if is_placeholder(value):
        return True
    return isinstance(value, str) and value.rstrip(",").isalpha() and value.isupper()


Fix = Callable[[JsonText], tuple[Edit, ...]]
Problem = tuple[str, Violation]  #: the id of the rule that is broken, and how it is
_MAX_SHOWN: Final = 60  # characters of a value in a message
#: Longer texts get no fixes: finding a safe one may read the text again, which is too slow there.
_MOST_CHARACTERS: Final = 200_000


class Run(NamedTuple):
    """One config as the job of a submission uses it."""

    config: Config
    submission: Submission

    @property
    def world(self) -> World:
        """The GPUs and how they are divided."""
        return world_of(self.submission)


#: The configs that could be read to their end, so that what they leave out is known too. Empty
#: files aren't among them.
configs: Final = ds_configs.where(lambda config: config.is_readable)


def _built_from_config(what: str) -> Subject[Config]:
    """The configs from which DeepSpeed builds `what`: a program may pass its own instead.

    Megatron-DeepSpeed always does, a script where code near the config says so.
    """

    def is_built(config: Config) -> bool:
        if config.consumer == "deepspeed":
            return not tells(what, config.path)
        return config.consumer != "megatron-deepspeed"

    return configs.where(is_built)


optimizer_from_config: Final = _built_from_config("an optimizer")
schedule_from_config: Final = _built_from_config("a schedule")
#: The readable configs, for rules that hold them against the rest of the submission.
runs: Final = Subject[Run](
    configs.reads, lambda submission: (Run(config, submission) for config in configs(submission))
)


def shown(value: object) -> str:
    """A value as JSON, shortened; of a placeholder without the comma that hjson reads with it."""
    if isinstance(value, str) and is_placeholder(value):
        value = value.strip().rstrip(",")
    # a config in YAML may have dates
    text = printable(json.dumps(value, ensure_ascii=False, default=str))
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."


def named(pointer: str) -> str:
    """A pointer as people write it, in backquotes."""
    return f"`{dotted(pointer)}`" if pointer else "the config"


def setting(config: Config, pointer: str) -> str:
    """A key with its value, in a message: `stage: 3`."""
    return f"{pointer.rpartition('/')[2]}: {shown(config.value(pointer))}"


def steps_by_torch(config: Config) -> bool:
    """Return whether the optimizer is an Adam, and torch's own."""
    return config.optimizer in ("adam", "adamw") and bool(config.switch(f"{PARAMS}/torch_adam"))


def edits_of(config: Config, fix: Fix | None) -> tuple[Edit, ...]:
    """The edits of a fix to a config of its own file; none in what a script writes."""
    is_long = len(config.json.text.content) > _MOST_CHARACTERS
    return () if fix is None or config.embedded or is_long else fix(config.json)


def to_remove(
    config: Config,
    pointer: str,
    message: str,
    hint: str | None = None,
    *,
    at_key: bool = False,
    severity: Severity | None = None,
) -> Violation:
    """A violation whose fix removes the key, where the config is no part of a script."""
    where = config.locate_key(pointer) if at_key else config.locate(pointer)
    edits = edits_of(config, partial(remove_member, pointer=pointer))
    hint = hint or f"remove {pointer.rpartition('/')[2]}"
    return Violation(where, message, hint, edits=edits, severity=severity)


def unused(config: Config, pointers: Iterable[str], why: str) -> Violations:
    """A violation for each of these keys that is written: it has no effect, and can go."""
    for pointer in pointers:
        if config.has(pointer) and config.value(pointer) != "auto":
            yield to_remove(
                config, pointer, f"{setting(config, pointer)} has no effect {why}", at_key=True
            )


def while_on(
    config: Config,
    pointer: str,
    effect: str,
    hint: str | None = None,
    severity: Severity | None = None,
) -> Violations:
    """A violation where a flag is on; `effect`: what it does then."""
    if config.switch(pointer):
        block, name = pointer.split("/")[-2:]
        what = f"{block} is enabled:" if name == "enabled" else f"{name}: true"
        hint = hint or f'set "{name}" to false'
        yield violation(config, pointer, f"{what} {effect}", hint, severity=severity)


def counted_from_1(config: Config, pointer: str, hint: str) -> Violations:
    """A violation where a number is no integer greater than 0."""
    value = config.number(pointer)
    if value is not None and (value <= 0 or value != int(value)):
        message = (
            f"{pointer.rpartition('/')[2]} must be an integer greater than 0, not {shown(value)}"
        )
        yield violation(config, pointer, message, hint)


def refused_with(
    config: Config, pointer: str, others: Mapping[str, object], hint: str
) -> Violations:
    """A violation where a key is refused beside others.

    `others` says of each name whether it is there.
    """
    present = ", ".join(name for name, is_there in others.items() if is_there)
    if present:
        message = f"{setting(config, pointer)} is refused with {present}"
        yield violation(config, pointer, message, hint)


def divides(config: Config, pointer: str, gpus: int | None, what: str = "{} GPUs") -> Violations:
    """A violation where a size above 1 doesn't divide a number of GPUs, which `what` calls."""
    size, name = config.whole(pointer), pointer.rpartition("/")[2]
    if gpus and size and size > 1 and gpus % size:
        message = f"{name}: {size} does not divide {what.format(gpus)}"
        yield violation(config, pointer, message, f"set {name} to {listed(divisors(gpus)[:8])}")


class Place(NamedTuple):
    """A key of a config, its section, and its value as hjson reads it."""

    config: Config
    section: Section
    pointer: str
    value: object

    @property
    def name(self) -> str:
        """The pointer as people write it, in backquotes."""
        return named(self.pointer)

    @property
    def siblings(self) -> Mapping[str, object]:
        """The keys beside it, and their values."""
        return self.config.block(self.pointer.rpartition("/")[0])

    @property
    def shown(self) -> str:
        return shown(self.value)

    @property
    def removal(self) -> Fix:
        """The fix that removes the key."""
        return partial(remove_member, pointer=self.pointer)

    def problem(
        self,
        rule: str,
        message: str,
        hint: str | None = None,
        *,
        answer: object = NOTHING,
        severity: Severity | None = None,
        fix: Fix | None = None,
        at_key: bool = False,
    ) -> Problem:
        """Say what is wrong with the value or the key.

        `answer` is the one right value, where there is one: then it is the hint, and the fix.
        """
        where = self.config.locate_key(self.pointer) if at_key else self.config.locate(self.pointer)
        if answer is not NOTHING:
            hint = f"write {json.dumps(answer)}"
            fix = partial(replace_value, pointer=self.pointer, value=answer)
        return rule, Violation(
            where, message, hint, severity=severity, edits=edits_of(self.config, fix)
        )
