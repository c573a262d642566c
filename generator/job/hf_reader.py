"""Typed reading of a Hugging Face config: every wrong value becomes a problem, and reading goes on."""

from __future__ import annotations

from collections.abc import Mapping

from ..catalog.loader import closest
from .wording import show

Problem = tuple[str, str, "str | None"]  #: key, what is wrong, hint

_LARGEST_NUMBER = 1e12  # of a base or a factor
_LARGEST = 10_000_000  # of a width or a count; products of such still fit 64-bit columns


class ConfigReader:
    """Reads keys of `config` with transformers' defaults; `problems` collects what is wrong, in reading order.

    A value that is wrong is replaced by the default (else 1), so that one mistake doesn't hide the next.
    """

    def __init__(self, config: Mapping[str, object]) -> None:
        self.config = config
        self.problems: list[Problem] = []

    def has(self, key: str) -> bool:
        """Whether the config has `key` with a value other than null."""
        return self.config.get(key) is not None

    def report(self, key: str, message: str, hint: str | None = None) -> None:
        """Add a problem."""
        self.problems.append((key, message, hint))

    def integer(
        self, *keys: str, default: int | None = None, example: int | None = None, low: int = 1, high: int = _LARGEST
    ) -> int:
        """A whole number from `low` to `high`, under the first of `keys` that is present; no default: required.

        `example` is a value to name in the hint where there is no default.
        """
        fallback = low if default is None else default
        suggested = example if default is None and example is not None else fallback
        key = self._present(keys)
        if key is None:
            if default is None:
                self._report_missing(keys[0], suggested)
            return fallback
        value = self.config[key]
        if isinstance(value, bool) or not isinstance(value, int):
            self.report(key, f"{key} is {show(value)}, not a whole number", f"{key}: {suggested}")
        elif not low <= value <= high:
            wanted = f"at least {low}" if value < low else f"at most {high}"
            self.report(key, f"{key} is {show(value)}, but must be {wanted}", f"{key}: {suggested}")
        else:
            return value
        return fallback

    def optional_integer(self, *keys: str, low: int = 1, high: int = _LARGEST) -> int | None:
        """As `integer`, where null or no key is an answer: `None`."""
        present = next((key for key in keys if self.has(key)), None)
        return None if present is None else self.integer(present, low=low, high=high)

    def boolean(self, key: str, default: bool) -> bool:
        """true or false; null counts as the default."""
        value = self.config.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            self.report(key, f"{key} is {show(value)}, not true or false", f"{key}: {str(default).lower()}")
            return default
        return value

    def fraction(self, *keys: str, default: float = 0.0) -> float:
        """A probability, 0 up to but not including 1; null counts as the default."""
        key = next((key for key in keys if self.has(key)), None)
        if key is None:
            return default
        value = self.config[key]
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            self.report(key, f"{key} is {show(value)}, not a number", f"{key}: {default}")
        elif not 0 <= value < 1:
            self.report(key, f"{key} is {value}, but must be at least 0 and below 1", f"{key}: {default}")
        else:
            return float(value)
        return default

    def positive(self, *keys: str, default: float) -> float:
        """A finite number above 0; null counts as the default."""
        key = next((key for key in keys if self.has(key)), None)
        if key is None:
            return default
        value = self.config[key]
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            self.report(key, f"{key} is {show(value)}, not a number", f"{key}: {default:g}")
        elif not 0 < value < _LARGEST_NUMBER:
            wanted = "above 0" if value < 1 else f"below {_LARGEST_NUMBER:g}"
            self.report(key, f"{key} is {show(value)}, but must be {wanted}", f"{key}: {default:g}")
        else:
            return float(value)
        return default

    def mapping(self, *keys: str) -> Mapping[str, object]:
        """A mapping; null or no key is an empty one."""
        key = next((key for key in keys if self.has(key)), None)
        if key is None:
            return {}
        value = self.config[key]
        if not isinstance(value, Mapping):
            self.report(key, f"{key} is {show(value)}, not a mapping", f"{key}: null")
            return {}
        return value

    def text(self, *keys: str, default: str) -> str:
        """A string; null counts as the default."""
        key = next((key for key in keys if self.has(key)), None)
        if key is None:
            return default
        value = self.config[key]
        if not isinstance(value, str):
            self.report(key, f"{key} is {show(value)}, not a text", f"{key}: {default}")
            return default
        return value

    def choice(self, key: str, choices: tuple[str, ...], default: str) -> str:
        """One of `choices`; null counts as the default."""
        value = self.text(key, default=default)
        if value not in choices:
            nearest = closest(value, choices) or default
            self.report(key, f"{key} is {show(value)}, not one of {', '.join(choices)}", f"{key}: {nearest}")
            return default
        return value

    def layer_indices(self, key: str) -> frozenset[int]:
        """A list of whole numbers; null or no key is the empty list."""
        value = self.config.get(key)
        if value is None:
            return frozenset()
        if not isinstance(value, (list, tuple)) or any(isinstance(i, bool) or not isinstance(i, int) for i in value):
            self.report(key, f"{key} is {show(value)}, not a list of layer numbers", f"{key}: []")
            return frozenset()
        return frozenset(value)

    def _present(self, keys: tuple[str, ...]) -> str | None:
        present = [key for key in keys if key in self.config]
        return next((key for key in present if self.has(key)), present[0] if present else None)

    def _report_missing(self, key: str, suggested: int) -> None:
        self.report(key, f"{key} is missing", f"add {key}: {suggested}")
