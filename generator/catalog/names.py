"""Names of models, accelerators and node types as people write them, and the catalog's entries for
them.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from functools import cache, lru_cache
from typing import Final, TypeVar

from ..dataclass import dataclass
from ..numerals import is_whole, whole
from ..patterns import lazy_pattern
from .records import Accelerator, ModelEntry, NodeType, load_catalog

_Record = TypeVar("_Record")

#: A version of a checkpoint: where the catalog has several, it is part of their names.
_VERSION: Final = lazy_pattern(r"v[0-9]{1,2}(?:\.[0-9]{1,2})?")
#: Words of a checkpoint's name that say how it was tuned or stored, not what shape it has; and
#: dates.
_TUNING: Final = lazy_pattern(
    r"instruct|chat|it|hf|base|pt|sft|dpo|thinking|preview|cased|uncased|bf16|meta|c4ai|[0-9]{4}"
)
#: Of a card's name, beside its family and its memory: vendor, brand, form, kind of memory.
_CARD: Final = lazy_pattern(
    r"nvidia|amd|intel|tesla|instinct|geforce|gaudi|gpu|sxm[0-9]?|oam|hbm[0-9]?e?|pcie|nvl"
)
_COUNTED: Final = lazy_pattern(
    r"(?:([1-9][0-9]{0,4}) ?[x×*] ?)?([1-9][0-9]{0,3}) ?[x×*] ?([a-z]\S*(?: \S+)*)", re.IGNORECASE
)
_COUNTED_LAST: Final = lazy_pattern(
    r"([a-z][\w .-]*[0-9][\w-]*?) ?[x×*] ?([1-9][0-9]{0,3})", re.IGNORECASE
)
#: NVIDIA's boards of eight cards, which many vendors build servers from: `hgx-h100`.
_BOARD: Final = lazy_pattern(r"(?:nvidia/)?hgx[ _-](?=\S)", re.IGNORECASE)
_SURELY: Final = 0.9  #: likeness, from 0 to 1, from which a name is taken for a node type's
_SIZE: Final = r"[0-9]+(?:\.[0-9]+)?[bm]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Machines:
    """Machines as they are counted: `4xa10g`, `16x8xh100`, `H100 x 8`."""

    nodes: int | None  #: None where only one node is described
    per_node: int
    accelerator: str  #: as it was written


def closest(name: str, choices: Iterable[str], alike: float = 0.6) -> str | None:
    """The choice most like `name` in lower case, or `None` when none is as like as `alike`, from 0
    to 1.
    """
    return most_like(name.lower(), tuple(choices), alike)


@lru_cache(maxsize=4096)
def most_like(name: str, choices: tuple[str, ...], alike: float) -> str | None:
    """As `closest`, with capitals as they are; cached, as many files share their names."""
    size, without_its_letters = len(name), str.maketrans(dict.fromkeys(name))
    # Others can't be as like: their lengths, or the letters that both have, rule it out.
    near = [
        each
        for each in choices
        if 2 * min(size, len(each)) >= (least := alike * (size + len(each)))
        and 2 * (len(each) - len(each.translate(without_its_letters))) >= least
    ]
    return next(iter(difflib.get_close_matches(name, near, n=1, cutoff=alike)), None)


def is_swapped(name: str, other: str) -> bool:
    """Whether two names differ in two neighbouring characters alone, which changed places."""
    if len(name) != len(other):
        return False
    differing = [place for place in range(len(name)) if name[place] != other[place]]
    if len(differing) != 2 or differing[1] - differing[0] != 1:
        return False
    first, last = differing[0], differing[1] + 1
    return name[first:last] == other[first:last][::-1]


def find_accelerator(name: str) -> Accelerator | None:
    """The accelerator called `name`: as in the catalog, by an alias, or as a driver says it; `None`
    without one.
    """
    accelerators = load_catalog().accelerators
    return _find(name, accelerators) or _card(_words(name), accelerators)


def find_node_type(name: str) -> NodeType | None:
    """The node type called `name`, with or without its provider; `None` when there is none."""
    node_types = load_catalog().node_types
    plain = name.strip().lower().replace(" ", "-").removeprefix("ml.")
    return _find(plain, node_types) or node_types.get(_by_last_part().get(_last_part(plain), ""))


def find_model(name: str) -> ModelEntry | None:
    """The model preset called `name`, or that has the shape of the checkpoint of this name on a
    hub; else `None`.

    `meta-llama/Llama-3.1-70B-Instruct` is `llama-3.1-70b`: the owner, and words on tuning and
    dates, say nothing of the shape. A size may be left out where there is only one.
    """
    models = load_catalog().models
    model = _find(name, models)
    if model is not None or not name.strip():
        return model

    # The whole name, then with less and less of what says nothing of the shape.
    words = _words(name.rstrip("/").rpartition("/")[2])
    untuned = [word for word in words if is_whole(word) or not _TUNING.fullmatch(word)]
    shape = [word for word in untuned if not _TUNING.fullmatch(word)]
    for kept in (words, untuned, shape, [word for word in shape if not _VERSION.fullmatch(word)]):
        if entry := _by_squeezed().get("".join(kept)):
            return models[entry]
    one_size = re.compile(re.escape("".join(kept)) + _SIZE)
    begun = [entry for key, entry in _by_squeezed().items() if kept and one_size.fullmatch(key)]
    return models[begun[0]] if len(set(begun)) == 1 else None


def machines_of(text: str) -> Machines | None:
    """Machines that are counted, or NVIDIA's board of eight (`hgx-h100`); `None` for other text."""
    if match := _BOARD.match(text.strip()):
        return Machines(nodes=None, per_node=8, accelerator=text.strip()[match.end() :])
    if match := _COUNTED.fullmatch(text.strip()):
        return Machines(
            nodes=whole(match[1]) if match[1] else None,
            per_node=whole(match[2]),
            accelerator=match[3],
        )
    match = _COUNTED_LAST.fullmatch(text.strip())
    return Machines(nodes=None, per_node=whole(match[2]), accelerator=match[1]) if match else None


def nodes_with(accelerator: Accelerator, per_node: int | None = None) -> list[NodeType]:
    """The node types that have an accelerator, and so many of it."""
    return [
        node
        for node in load_catalog().node_types.values()
        if node.accelerator == accelerator and per_node in (None, node.accelerators_per_node)
    ]


def nearest(name: str, kind: str) -> str | None:
    """The name of a `kind` of entry (`models`, `accelerators`, `node_types`) that is most like
    `name`.
    """
    catalog = load_catalog()
    entries: Mapping[str, object] = getattr(catalog, kind)
    names = {
        **{entry: entry for entry in entries},
        **{alias: entry for alias, entry in catalog.aliases.items() if entry in entries},
    }
    if kind == "models":
        name = name.rpartition("/")[2]
    plain, machines = "-".join(_words(name)), machines_of(name)
    if machines is not None and kind == "node_types":
        if find_node_type(machines.accelerator):  # it has its own number: `32xgb300-nvl72`
            return machines.accelerator
        if near := closest(machines.accelerator, names, _SURELY):
            return near
        card = nearest(machines.accelerator, "accelerators")
        return card and f"{machines.per_node}x{card}"
    begun = [each for each in names if plain and each.startswith(plain)]
    if kind == "node_types":
        # Alike in size alone, `trn1.32xlarge` and `g5.12xlarge` are different machines.
        names = {each: names[each] for each in names if closest(_series(name), {_series(each)})}
    near = min(begun, key=len) if begun else closest(plain, names)
    cards = _cards_in(name) if kind == "node_types" else None
    if cards and not (near and cards[1] == catalog.node_types[names[near]].accelerator):
        return cards[0]
    return near


def _cards_in(name: str) -> tuple[str, Accelerator] | None:
    """Return the cards in the name of an unknown machine, as they are counted, and their entry:
    `BM.GPU.H100.8`.
    """
    catalog, low = load_catalog(), name.lower()
    aliases = {alias for alias, card in catalog.aliases.items() if card in catalog.accelerators}
    for card in sorted(aliases | catalog.accelerators.keys(), key=len, reverse=True):
        if match := re.search(rf"(?<![a-z0-9])(?:([0-9]{{1,2}})x)?{re.escape(card)}(?![0-9])", low):
            entry = catalog.accelerators[catalog.aliases.get(card, card)]
            usual = [node.accelerators_per_node for node in nodes_with(entry)]
            return f"{match[1] or max(usual, default=8)}x{card}", entry
    return None


def _find(name: str, records: Mapping[str, _Record]) -> _Record | None:
    key = name.strip().lower().replace(" ", "-")
    return records.get(key) or records.get(load_catalog().aliases.get(key, ""))


def _words(name: str) -> list[str]:
    """The parts of a name; none of text that can't be a name."""
    return re.findall(r"[a-z0-9.]+", name.lower()) if re.fullmatch(r"[\w .:@/()+-]*", name) else []


@cache
def _by_squeezed() -> Mapping[str, str]:
    """Model presets and aliases by their names without separators: `llama3.18b` for
    `llama-3.1-8b`.
    """
    catalog = load_catalog()
    aliases = {alias: name for alias, name in catalog.aliases.items() if name in catalog.models}
    return {
        "".join(_words(called)): name
        for called, name in {**aliases, **{n: n for n in catalog.models}}.items()
    }


def _last_part(name: str) -> str:
    return name.replace("_", "-").removeprefix("standard-")


def _series(name: str) -> str:
    """The letters that a machine's name begins with, less its provider: `g` of
    `aws/g5.12xlarge`.
    """
    last = _last_part(name.strip().lower().removeprefix("ml.").rpartition("/")[2])
    return re.match(r"[a-z]*", last)[0]  # type: ignore[index]  # may be empty


@cache
def _by_last_part() -> Mapping[str, str]:
    """Node types by their names without provider, where only one has it."""
    parts = [_last_part(name.partition("/")[2]) for name in load_catalog().node_types]
    return {
        part: name
        for part, name in zip(parts, load_catalog().node_types, strict=True)
        if parts.count(part) == 1
    }


def _card(words: list[str], accelerators: Mapping[str, Accelerator]) -> Accelerator | None:
    """The card of a driver's name: `NVIDIA A100-SXM4-80GB`. Its memory decides, then SXM or
    PCIe.
    """
    memory = [word for word in words if re.fullmatch(r"[0-9]+gb", word)]
    family = [word for word in words if word not in memory and not _CARD.fullmatch(word)]
    pcie = "pcie" in words
    cards = {
        key: card
        for key, card in accelerators.items()
        if not card.is_slice
        and family == _words(key)[: len(family)]
        and (not memory or memory[0] in _words(key))
    }
    if not family or not cards:
        return None
    return cards[min(cards, key=lambda key: (("pcie" in key) is not pcie, len(key), key))]
