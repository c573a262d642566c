"""The defaults of a program of Hydra, as its config folder has them: files that name one another.

**Source**: facebookresearch/hydra hydra/core/default_element.py, hydra/_internal/defaults_list.py @
1.3.2: `group@package: option`, `_self_`, and the header `# @package`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from posixpath import join, normpath
from typing import Final, NamedTuple

from ...patterns import lazy_pattern
from ...text.around import text_around, until_next_check
from ...text.document import LEGACY
from ...text.source import parse
from ...text.text import Text

_OWN: Final = "_self_"
_GLOBAL: Final = "_global_"
_HERE: Final = "_here_"
#: What is before a group of the list, and changes nothing of a file that is there.
_OPTIONAL: Final = lazy_pattern(r"optional\s+")
_HEADER: Final = lazy_pattern(r"^#\s*@package\s+([\w.]+)\s*$", re.MULTILINE)
_CHOICE: Final = lazy_pattern(r"\$\{(\w+)\}")
_MAIN: Final = lazy_pattern(r"@hydra\.main\(([^()]*)\)")
_ARGUMENT: Final = r"{}\s*=\s*[\"']([^\"']+)[\"']"
_MOST_FILES: Final = 200  # that name one another; verl's are 40
_DIALECT: Final = replace(LEGACY, own_parser=False)


class Defaults(NamedTuple):
    """The values of a program's own config."""

    #: by dotted names, with those of all mappings
    values: Mapping[str, object]
    #: the names of mappings of which a file isn't there
    missing: frozenset[str]

    def lacks(self, name: str) -> bool:
        """Whether the program surely has no such key."""
        if name in self.values:
            return False
        return not any(name.startswith(f"{package}.") or not package for package in self.missing)


def defaults_of(program: Path, name: str, chosen: Mapping[str, str]) -> Defaults | None:
    """The values of a program's config of a name, or of its own; None where it has none, or it
    can't be read.

    `chosen` are the options of groups that a command line gives.
    """
    main = _MAIN.search(text_around(program, program.parent))
    if main is None:
        return None
    folder, own_name = (
        re.search(_ARGUMENT.format(argument), main[1])
        for argument in ("config_path", "config_name")
    )
    if folder is None or own_name is None:
        return None
    name = (name or own_name[1]).removesuffix(".yaml")
    return _read(program.parent / folder[1], name, tuple(sorted(chosen.items())))


@until_next_check(64)
def _read(folder: Path, name: str, chosen: tuple[tuple[str, str], ...]) -> Defaults | None:
    config = _Config(folder, dict(chosen))
    try:
        config.add(name, "", "")
    except _UnreadableConfig:
        return None
    return Defaults(config.values, frozenset(config.missing))


class _UnreadableConfig(Exception):
    """A part of a config is written in a way that isn't followed, or isn't YAML."""


class _Config:
    """A config while its files are put together."""

    def __init__(self, folder: Path, chosen: dict[str, str]) -> None:
        self.values: dict[str, object] = {}
        self.missing = set[str]()
        self._folder, self._choices, self._files_left = folder, chosen, _MOST_FILES

    def add(self, name: str, group: str, package: str) -> None:
        """Add the values of a file of a group, and of those that it names, in order."""
        path = self._folder / group / f"{name}.yaml"
        content = text_around(path, self._folder)
        self._files_left -= 1
        if not content and group:
            self.missing.add(package)  # as of a folder `data` that .gitignore leaves out
            return
        text = Text(path=str(path), content=content, lines=content.splitlines())
        data = parse(text, _DIALECT).data
        if not isinstance(data, dict) or not self._files_left:
            raise _UnreadableConfig

        header = _HEADER.search(content)
        if header is not None:
            package = header[1].replace(_GLOBAL, "")
        own = {key: value for key, value in data.items() if key != "defaults"}
        entries = data.get("defaults", [])
        entries = entries if isinstance(entries, list) else []
        overrides = dict(filter(None, map(_override, entries)))
        # What the command line, or a file that names this one, chose counts.
        self._choices = {**overrides, **self._choices}
        for entry in entries:
            if _override(entry) is not None:
                continue
            if entry == _OWN:
                self.values.update(_flat(own, package))
            elif isinstance(entry, str):
                file, _, inner = entry.partition("@")
                self.add(file, group, ".".join(filter(None, (package, inner))))
            else:
                self._add_choice(entry, group, package)
        if _OWN not in entries:
            self.values.update(_flat(own, package))

    def _add_choice(self, entry: object, group: str, package: str) -> None:
        """Add the file that an entry such as `../optim@optim: fsdp` chooses."""
        if not isinstance(entry, dict) or len(entry) != 1:
            raise _UnreadableConfig
        ((key, default),) = entry.items()
        inner_group, _, inner_package = _OPTIONAL.sub("", str(key)).partition("@")
        if " " in inner_group:
            raise _UnreadableConfig
        option = self._choices.get(inner_group, default)
        if option is None:
            return
        self._choices[inner_group] = str(option)
        name = _CHOICE.sub(lambda choice: self._choices.get(choice[1], choice[0]), str(option))
        if not inner_package:
            inner_package = inner_group.strip("/").replace("/", ".")
        if inner_package == _HERE:
            inner_package = ""
        inside = [] if inner_package == _GLOBAL else [package, inner_package]
        path = normpath(join(group, inner_group)).strip("/")
        if path.startswith(".."):
            raise _UnreadableConfig
        self.add(name.removesuffix(".yaml"), path, ".".join(filter(None, inside)))


def _override(entry: object) -> tuple[str, str] | None:
    """The group and the option of `override GROUP: OPTION`, which changes what another file chose;
    None for other entries.
    """
    if not isinstance(entry, dict) or len(entry) != 1:
        return None
    ((key, option),) = entry.items()
    words = str(key).split()
    if words[0] != "override" or len(words) != 2 or not isinstance(option, str):
        return None
    return words[1].partition("@")[0].strip("/"), option


def _flat(data: Mapping[str, object], package: str) -> Iterator[tuple[str, object]]:
    """The values of a mapping and of mappings in it by dotted names, and all mappings."""
    parts = package.split(".") if package else []
    yield from ((".".join(parts[:end]), {}) for end in range(1, len(parts) + 1))
    pending = [(package, data)]
    while pending:
        within, mapping = pending.pop()
        for key, value in mapping.items():
            name = f"{within}.{key}" if within else str(key)
            yield name, value
            if isinstance(value, dict):
                pending.append((name, value))
