"""Names of models, accelerators and node types as people write them, and the catalog's entries for
them.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from functools import cache, lru_cache
from typing import Final, NamedTuple, TypeVar

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
#: Words of a card's name that are neither its family nor its memory: vendor, brand, form, kind of
#: memory.
_CARD_EXTRAS: Final = lazy_pattern(
    r"nvidia|amd|intel|tesla|instinct|geforce|gaudi|gpu|sxm[0-9]?|oam|hbm[0-9]?e?|pcie|nvl"
)
#: `8xh100`, or with nodes before it, `16x8xh100`.
_COUNTED: Final = lazy_pattern(
    r"(?:([1-9][0-9]{0,4}) ?[x×*] ?)?([1-9][0-9]{0,3}) ?[x×*] ?([a-z]\S*(?: \S+)*)", re.IGNORECASE
)
#: `H100 x 8`.
_COUNTED_LAST: Final = lazy_pattern(
    r"([a-z][\w .-]*[0-9][\w-]*?) ?[x×*] ?([1-9][0-9]{0,3})", re.IGNORECASE
)
#: NVIDIA's boards of eight cards, which many vendors build servers from: `hgx-h100`.
_BOARD: Final = lazy_pattern(r"(?:nvidia/)?hgx[ _-](?=\S)", re.IGNORECASE)
#: How alike a node type's name must be to be meant, as `most_like` has it: one letter in ten
#: differs.
_SURELY: Final = 0.9
_LIKELY: Final = 0.6  #: difflib's own threshold
_GPUS_OF_A_BOARD: Final = 8  #: of NVIDIA's HGX
_SIZE: Final = r"[0-9]+(?:\.[0-9]+)?[bm]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Machines:
    """Machines as they are counted: `4xa10g`, `16x8xh100`, `H100 x 8`."""

    nodes: int | None  #: None where only one node is described
    per_node: int
    accelerator: str  #: as it was written


class _CountedCards(NamedTuple):
    """Cards as a machine's name has them."""

    text: str  #: with their number: `8xh100`
    accelerator: Accelerator


def closest(name: str, choices: Iterable[str], alike: float = _LIKELY) -> str | None:
    """The choice most like `name` in lower case; `None` where none is at least `alike`."""
    return most_like(name.lower(), tuple(choices), alike)


@lru_cache(maxsize=4096)
def most_like(name: str, choices: tuple[str, ...], alike: float) -> str | None:
    """As `closest`, with capitals as they are; cached, as many files share their names.

    Likeness is difflib's: twice the letters that two names have in common, in order, by the letters
    of both. Where k of n letters are others, it is 1 - k / n.
    """
    without_its_letters = str.maketrans(dict.fromkeys(name))

    def may_be_alike(choice: str) -> bool:
        """Whether neither the lengths nor the letters, in any order, rule it out."""
        least_in_common = alike * (len(name) + len(choice)) / 2
        if min(len(name), len(choice)) < least_in_common:
            return False
        others = choice.translate(without_its_letters)
        return len(choice) - len(others) >= least_in_common

    near = filter(may_be_alike, choices)  # difflib takes its time with each
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
    return _find(plain, node_types) or node_types.get(
        _by_name_without_provider().get(_without_standard(plain), "")
    )


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
    undated = [word for word in untuned if not _TUNING.fullmatch(word)]
    unversioned = [word for word in undated if not _VERSION.fullmatch(word)]
    for kept_words in (words, untuned, undated, unversioned):
        entry = _by_squeezed().get("".join(kept_words))
        if entry is not None:
            return models[entry]
    if not unversioned:
        return None

    with_a_size = re.compile(re.escape("".join(unversioned)) + _SIZE)
    entries = {entry for key, entry in _by_squeezed().items() if with_a_size.fullmatch(key)}
    return models[entries.pop()] if len(entries) == 1 else None


def machines_of(text: str) -> Machines | None:
    """Machines that are counted, or NVIDIA's board of eight (`hgx-h100`); `None` for other text."""
    text = text.strip()
    if match := _BOARD.match(text):
        card = text[match.end() :]
        return Machines(nodes=None, per_node=_GPUS_OF_A_BOARD, accelerator=card)
    if match := _COUNTED.fullmatch(text):
        nodes, per_node, card = match.groups()
        return Machines(
            nodes=whole(nodes) if nodes else None, per_node=whole(per_node), accelerator=card
        )
    if match := _COUNTED_LAST.fullmatch(text):
        card, per_node = match.groups()
        return Machines(nodes=None, per_node=whole(per_node), accelerator=card)
    return None


def nodes_with(accelerator: Accelerator, per_node: int | None = None) -> list[NodeType]:
    """The node types that have an accelerator, `per_node` of it where that is given."""
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
    if kind == "node_types":
        return _nearest_node_type(name, names)
    if kind == "models":
        name = name.rpartition("/")[2]
    return _begun(name, names) or closest(_dashed(name), names)


def _dashed(name: str) -> str:
    return "-".join(_words(name))


def _begun(name: str, choices: Iterable[str]) -> str | None:
    """The shortest of the choices that begin with `name`."""
    beginnings = tuple(filter(None, (_dashed(name), name.strip().lower())))
    longer = [choice for choice in choices if choice.startswith(beginnings)]
    return min(longer, key=len, default=None)


def _nearest_node_type(name: str, names: Mapping[str, str]) -> str | None:
    """The node type that is most like `name`, or the cards that it names; `names` has the entries
    by all their names.
    """
    machines = machines_of(name)
    if machines is not None:
        if find_node_type(machines.accelerator):  # with a number of its own: `32xgb300-nvl72`
            return machines.accelerator
        near = closest(machines.accelerator, names, _SURELY)
        if near is not None:
            return near
        card = nearest(machines.accelerator, "accelerators")
        return card and f"{machines.per_node}x{card}"

    # Alike in size alone, `trn1.32xlarge` and `g5.12xlarge` are different machines.
    series = _series(name)
    of_series = [known_name for known_name in names if closest(series, {_series(known_name)})]
    near = _begun(name, names) or closest(_dashed(name), of_series)
    cards = _cards_in(name)
    if cards is None:
        return near
    node_types = load_catalog().node_types
    has_cards = near is not None and node_types[names[near]].accelerator == cards.accelerator
    return near if has_cards else cards.text


def _cards_in(name: str) -> _CountedCards | None:
    """The cards in the name of an unknown machine, as `BM.GPU.H100.8`.

    Where their number isn't before them, it is the most that a known node type has.
    """
    catalog, low = load_catalog(), name.lower()
    aliases = {alias for alias, card in catalog.aliases.items() if card in catalog.accelerators}
    for card in sorted(aliases | catalog.accelerators.keys(), key=len, reverse=True):
        match = re.search(rf"(?<![a-z0-9])(?:([0-9]{{1,2}})x)?{re.escape(card)}(?![0-9])", low)
        if match is None:
            continue
        entry = catalog.accelerators[catalog.aliases.get(card, card)]
        counts = [node.accelerators_per_node for node in nodes_with(entry)]
        number = match[1] or max(counts, default=_GPUS_OF_A_BOARD)
        return _CountedCards(f"{number}x{card}", entry)
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
    entries = aliases | {name: name for name in catalog.models}
    return {"".join(_words(name)): entry for name, entry in entries.items()}


def _without_standard(name: str) -> str:
    """A node type's name without what Azure puts before each of its own: `Standard_`."""
    return name.replace("_", "-").removeprefix("standard-")


def _series(name: str) -> str:
    """The letters that a machine's name begins with, less its provider: `g` of
    `aws/g5.12xlarge`.
    """
    last = _without_standard(name.strip().lower().removeprefix("ml.").rpartition("/")[2])
    return re.split(r"[^a-z]", last, maxsplit=1)[0]


@cache
def _by_name_without_provider() -> Mapping[str, str]:
    """Node types by their names without provider, where only one has it."""
    parts = [_without_standard(name.partition("/")[2]) for name in load_catalog().node_types]
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
    family = [word for word in words if word not in memory and not _CARD_EXTRAS.fullmatch(word)]
    if not family:
        return None
    fitting = []
    for key, card in accelerators.items():
        words_of_card = _words(key)
        is_of_family = words_of_card[: len(family)] == family
        has_memory = not memory or memory[0] in words_of_card
        if is_of_family and has_memory and not card.is_slice:
            fitting.append(key)
    is_pcie = "pcie" in words
    # Of the same form first, then the plainest name.
    fitting.sort(key=lambda key: (("pcie" in key) != is_pcie, len(key), key))
    return accelerators[fitting[0]] if fitting else None
