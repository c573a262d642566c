"""Values that are left to the reader, and those that look like them."""

from __future__ import annotations

import pytest

from generator.places import is_left_open, is_several_words


@pytest.mark.parametrize(
    "text", ["x.x.x.x", "10.0.0.x", "192.168.1.*", "...", "xx", "CHANGE_ME", "<host>", "your_ip"]
)
def test_a_value_that_somebody_is_to_fill_in_is_left_open(text: str) -> None:
    """Dots, crosses in an address and the marks of templates are placeholders."""
    assert is_left_open(text)


@pytest.mark.parametrize(
    "text", ["10.0.0.1", "localhost", "worker-0", "node1", "GPU001", "master", "29500", "steps"]
)
def test_a_value_that_may_be_meant_is_not_left_open(text: str) -> None:
    """Addresses, names with a number and the names that machines have are values."""
    assert not is_left_open(text)


def test_an_options_own_name_is_a_placeholder_of_it_alone() -> None:
    """`--master_port=master_port` is to be filled in; another option's value of that text is judged
    by itself.
    """
    assert is_left_open("max_steps", "--max-steps")
    assert not is_left_open("max_steps", "--save-strategy")


@pytest.mark.parametrize(
    ("text", "words"), [("node_ip", True), ("number of nodes", True), ("gpu-node", False)]
)
def test_words_are_neither_a_number_nor_a_host(text: str, words: bool) -> None:
    """Words with blanks or underscores are no host's name and no number, whatever they say."""
    assert is_several_words(text) == words
