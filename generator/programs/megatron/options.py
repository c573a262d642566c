"""The options of the Megatrons' parsers, by version, and those that only forks and old releases have."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Set
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, Literal

from ...dataclass import dataclass

Flavour = Literal["megatron-lm", "megatron-deepspeed"]
Kind = Literal["int", "float", "text", "flag"]

_NEAR: Final = 0.75  # likeness of names of which one is taken for a slip of the other
_SLIP: Final = 0.92  # the same where the name may well be another's: a letter or two
_MOST_OF: Final = 0.75  # of a name: what abbreviates it


#: A fork that isn't known by name.
A_FORK: Final = "a fork"
_FIRST: Final = "Megatron-LM 1.0"  # read the options that all later ones refuse (megatron/arguments.py @ v1.0)
_FEW: Final = 2  # of unknown options or removed ones: one may be a slip, two are another program's
_PATH: Final = ("path",)
#: Keys of `data.tokenizer` that a kind reads, where these are known.
TOKENIZERS: Final = {
    "BertWordPieceLowerCase": ("vocab_file",),
    "BertWordPieceCase": ("vocab_file",),
    "GPT2BPETokenizer": ("vocab_file", "merges_file"),
    "SentencePieceTokenizer": _PATH,
    "GPTSentencePieceTokenizer": _PATH,
    "HuggingFaceTokenizer": _PATH,
    "HFTokenizer": _PATH,
    "Llama2Tokenizer": _PATH,
    "TikTokenizer": _PATH,
}
#: Read by the parsers only to be refused, and what replaced it.
REMOVED: Final = {
    "--batch-size": "--micro-batch-size",
    "--warmup": "--lr-warmup-fraction",
    "--model-parallel-size": "--tensor-model-parallel-size",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class MegatronOption:
    """One option as argparse has it."""

    name: str
    kind: Kind
    nargs: str | None = None  #: `+`, `*` or `?`; None: exactly one value, or none for a flag
    choices: tuple[object, ...] = ()  #: empty: any
    default: object = None  #: of the newest version; False for flags
    versions: tuple[int, ...] = ()  #: indexes of the table's versions that have it; empty: all


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionTable:
    """Options that one of the two projects reads. Neither accepts abbreviations."""

    flavour: Flavour
    versions: tuple[str, ...]  #: oldest first
    aliases: Mapping[str, str]
    rows: Mapping[str, Mapping[str, Any]]

    def get(self, name: str) -> MegatronOption | None:
        """The option of that name or alias."""
        name = self.aliases.get(name, name)
        row = self.rows.get(name)
        if row is None:
            return None
        kind: Kind = row["kind"]
        return MegatronOption(
            name=name,
            kind=kind,
            nargs=row.get("nargs"),
            choices=tuple(row.get("choices", ())),
            default=row.get("default", False if kind == "flag" else None),
            versions=tuple(map(int, row.get("in", ""))),
        )

    def has(self, name: str) -> bool:
        """Return whether any version reads the option."""
        return name in self.rows or name in self.aliases

    def near(self, name: str, *, slip: bool = False) -> str | None:
        """The option that an unknown one is probably meant to be; with `slip`, but for a letter or two, or its end."""
        return _near(self.flavour, name, slip) if len(name) <= 80 else None  # no option is as long; it would take time

    def newest_with(self, names: frozenset[str]) -> int | None:
        """The index of the newest version that has all these options; None where none has."""
        left = set(range(len(self.versions)))
        for name in names:
            option = self.get(name)
            if option is not None and option.versions:
                left &= set(option.versions)
        return max(left, default=None)


@lru_cache(maxsize=2)
def _json(name: str) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(Path(__file__).with_name(name).read_text(encoding="utf-8"))
    return data


@lru_cache(maxsize=2)
def option_table(flavour: Flavour) -> OptionTable:
    """The options of a project. Read from disk on the first call (1 ms)."""
    data = _json("megatron_options.json")[flavour]
    return OptionTable(flavour=flavour, versions=tuple(data["versions"]), aliases=data["aliases"], rows=data["options"])


@lru_cache(maxsize=4096)
def _near(flavour: Flavour, name: str, slip: bool) -> str | None:
    """Find the option that a name is near: kept, because comparing with hundreds of names takes time."""
    table, dashed = option_table(flavour), "--" + name.lstrip("-").replace("_", "-").lower()
    for candidate in (dashed, dashed.replace("-", "_").replace("__", "--", 1)):
        if table.has(candidate):
            return candidate
    begun = [known for known in table.rows if known.startswith(dashed)]
    if len(begun) == 1 and (not slip or len(dashed) >= _MOST_OF * len(begun[0])):
        return begun[0]
    known = sorted((table.rows.keys() - REMOVED.keys()) | table.aliases.keys())
    return next(iter(difflib.get_close_matches(dashed, known, n=1, cutoff=_SLIP if slip else _NEAR)), None)


def forks() -> Mapping[str, Mapping[str, Any]]:
    """Options and choices of the forks that are known by name, beyond the project that they started from."""
    known: Mapping[str, Mapping[str, Any]] = _json("megatron_forks.json")["forks"]
    return known


@lru_cache(maxsize=1)
def open_choices() -> frozenset[str]:
    """Options to which forks add choices."""
    return frozenset(option for fork in forks().values() for option in fork["choices"]) | {"--position-embedding-type"}


def fork_of(flavour: Flavour, unknown: Set[str], refused: Mapping[str, str], given: Set[str]) -> tuple[str, Flavour]:
    """The fork's name and the project that it started from; no name where nothing says that it is one.

    `unknown` are options that are no slips of known ones, `refused` choices by option, `given` all known options.
    """
    signs = {
        name: len(unknown & {*fork["options"]})
        + sum(text in fork["choices"].get(option, ()) for option, text in refused.items())
        for name, fork in forks().items()
    }
    name = max(signs, key=lambda name: signs[name])
    if signs[name]:
        return name, forks()[name]["base"]
    if len(given & REMOVED.keys()) >= _FEW and "--micro-batch-size" not in given:
        return _FIRST, flavour
    return (A_FORK if len(unknown) >= _FEW else ""), flavour
