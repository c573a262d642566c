"""What a framework hands to a launcher: the program's arguments, environment and configuration files."""

from __future__ import annotations

from collections.abc import Mapping

from ..dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderedFile:
    """A file to be written: relative path and whole text."""

    path: str
    text: str
    executable: bool = False


@dataclass(frozen=True, slots=True)
class ConfigPath:
    """An argument that is the path of a rendered file, which only the launcher knows at run time."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ArgumentGroup:
    """Arguments that belong together, with a comment that says why they are what they are."""

    comment: str
    arguments: tuple[str | ConfigPath, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Resume:
    """An argument that a start adds by itself: the last whole checkpoint, if there is one."""

    option: str
    folder: str  #: that holds the checkpoints, as the program sees it
    prefix: str  #: of a checkpoint's name; the step follows
    complete: str  #: a file of the checkpoint that is written last


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What every process of the job runs, independent of who starts it."""

    script: str
    groups: tuple[ArgumentGroup, ...]
    environment: Mapping[str, str]  #: what the framework needs; the user's own variables come on top
    files: tuple[RenderedFile, ...]  #: configuration files, e.g. ds_config.json
    notes: tuple[str, ...] = ()  #: choices a reader would question, for the launch script's header
    resume: Resume | None = None  #: None: the program finds its last checkpoint itself, or doesn't go on

    @property
    def arguments(self) -> tuple[str | ConfigPath, ...]:
        """All arguments after the script, in order."""
        return tuple(a for group in self.groups for a in group.arguments)
