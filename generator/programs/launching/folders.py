"""Folders that a training program saves to, as its options name them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ...submission.launches import Launch
from ...text.shell.records import Word

#: Options of training programs for the folder that checkpoints are written to: Transformers',
#: Megatron's and others'.
_FOLDERS: Final = frozenset(
    {
        "--checkpoint-dir",
        "--checkpoint_dir",
        "--checkpoints_path",
        "--ckpt-dir",
        "--ckpt_dir",
        "--out_dir",
        "--output",
        "--output-dir",
        "--output_dir",
        "--save",
        "--save-dir",
        "--save-path",
        "--save_dir",
        "--save_path",
    }
)


def folders_to_save(launch: Launch) -> Iterator[tuple[str, Word, str]]:
    """The option, the word that has the folder, and the folder, of each that is known."""
    words = launch.arguments
    for word, following in zip(words, (*words[1:], None), strict=False):
        name, equals, value = (word.value or "").partition("=")
        if name not in _FOLDERS:
            continue
        if equals:
            yield name, word, value
        elif following and following.value and not following.value.startswith("-"):
            yield name, following, following.value
