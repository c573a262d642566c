"""`--pipeline-model-parallel-layout` as Megatron-LM reads it."""

from __future__ import annotations

import pytest

from dsgen.programs.megatron.run import chunks_of, faults, stage_sizes, uneven_ends

DEEPSEEK = "Et*4|(t*4|)*14tmL"


@pytest.mark.parametrize(
    ("text", "chunks"),
    [
        ("Ettt|(tt|)*2,m|L", ("Ettt", "tt", "tt", "m", "L")),
        ("(ab|cd|ef)*2,pq", ("ab", "cd", "efab", "cd", "efpq")),
        ("(|ab)*2,cd", ("", "ab", "abcd")),
        (DEEPSEEK, ("Etttt", *["tttt"] * 14, "tmL")),
    ],
)
def test_repeats_are_written_out(text: str, chunks: tuple[str, ...]) -> None:
    """Parentheses and letters are repeated, and commas mean nothing, as the parser's own examples
    have it.
    """
    assert chunks_of(text) == chunks


def test_no_text_takes_all_memory() -> None:
    """A number of repeats beyond any model is not written out."""
    assert chunks_of("Et*99999999999|L") is None
    assert chunks_of("(t*90000)*90000|L") is None
    assert chunks_of(f"Et*{'9' * 5000}|L") is None


def test_stages_hold_every_chunk_of_theirs() -> None:
    """Chunks go round the stages; ends are uneven only where the stages between are equal."""
    chunks = chunks_of(DEEPSEEK) or ()
    assert stage_sizes(chunks, 4) == [16, 16, 16, 13]
    assert stage_sizes(chunks, 2) == [32, 29]
    assert uneven_ends(chunks, 4) == (0, 0)  # 13 layers are no four equal chunks
    assert uneven_ends(("Et", "tt", "tt", "tL"), 4) == (1, 1)
    assert uneven_ends(("Et", "ttt", "tt", "tL"), 4) == (0, 0)


@pytest.mark.parametrize(
    ("text", "stages", "count"),
    [
        (DEEPSEEK, 4, 0),
        ("tE|tL", 2, 1),
        ("Et|tEL", 2, 1),
        ("Et|Lt", 2, 1),
        ("Et|x|L", 3, 1),
        ("Etm|tL", 2, 1),  # before a layer
        ("Et|tm|t|L", 2, 2),  # and in the first of two chunks of its stage
        ("Et|tm|tm|L", 2, 2),
        ("Et|t|mL|", 2, 0),
    ],
)
def test_faults_are_those_that_megatron_asserts(text: str, stages: int, count: int) -> None:
    """Ends in their places, further predictions after all layers and in one last chunk."""
    assert len(faults(chunks_of(text) or (), stages)) == count
