"""A mapping that notes which of its keys are asked for, and with which default."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


class Asked:
    """Keys asked for, by the JSON pointer of their mapping; each with the default given, if any."""

    def __init__(self) -> None:
        self.sections: dict[str, dict[str, Any]] = {}
        #: mappings that were copied or gone through, whatever their keys
        self.taken_whole: set[str] = set()

    def note(self, path: str, key: Any, default: Any = None) -> None:
        """`key` of the mapping at `path` was asked for."""
        if isinstance(key, str):
            keys = self.sections.setdefault(path, {})
            if keys.get(key) is None:
                keys[key] = default

    def at(self, path: str) -> dict[str, Any]:
        """The keys asked for of the mapping at `path`."""
        return self.sections.get(path, {})

    def drop(self, path: str) -> None:
        """Forget a key that was ours."""
        section, _, key = path.rpartition("/")
        self.sections.get(section, {}).pop(key, None)


class Recorder(dict):  # type: ignore[type-arg]
    """A mapping at the JSON pointer `path` that tells `asked` about every question."""

    def __init__(self, data: dict[str, Any], path: str, asked: Asked) -> None:
        super().__init__({key: _wrap(value, f"{path}/{key}", asked) for key, value in data.items()})
        self._path = path
        self._asked = asked

    def __contains__(self, key: object) -> bool:
        self._asked.note(self._path, key)
        return super().__contains__(key)

    def __getitem__(self, key: Any) -> Any:
        self._asked.note(self._path, key)
        return super().__getitem__(key)

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(key, _wrap(value, f"{self._path}/{key}", self._asked))

    def get(self, key: Any, default: Any = None) -> Any:
        """The value, or `default`, which then is what the parser takes."""
        self._asked.note(self._path, key, default)
        if super().__contains__(key):
            return super().__getitem__(key)
        return _wrap(default, f"{self._path}/{key}", self._asked)

    def pop(self, key: Any, *default: Any) -> Any:
        """As a dict's."""
        self._asked.note(self._path, key, *default)
        return super().pop(key, *default)

    def keys(self) -> Any:
        """A view whose `in` is a question too."""
        return _Keys(self)

    def items(self) -> Any:
        """As a dict's; the keys no longer matter."""
        self._asked.taken_whole.add(self._path)
        return super().items()

    def __copy__(self) -> Recorder:
        if self._path:  # the parser always copies the outermost mapping
            self._asked.taken_whole.add(self._path)
        return Recorder(dict(super().items()), self._path, self._asked)

    copy = __copy__

    def __deepcopy__(self, memo: Any) -> Recorder:
        return self.__copy__()


class _Keys:
    def __init__(self, mapping: Recorder) -> None:
        self._mapping = mapping

    def __contains__(self, key: object) -> bool:
        return key in self._mapping

    def __iter__(self) -> Iterator[Any]:
        return iter(self._mapping)

    def __len__(self) -> int:
        return len(self._mapping)


def _wrap(value: Any, path: str, asked: Asked) -> Any:
    return (
        Recorder(value, path, asked)
        if isinstance(value, dict) and not isinstance(value, Recorder)
        else value
    )
