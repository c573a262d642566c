"""Keys that a query meets: closed forms against the masks themselves."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dsgen.catalog.layers.softmax import SoftmaxAttention, Span
from dsgen.catalog.layers.stack import Stack
from dsgen.estimate.flops import attention_flops_per_token
from dsgen.estimate.layout import Layout
from dsgen.estimate.stages import stage_contents
from dsgen.job.records import Job
from tests.jobs import job
from tests.models import changed

SEQUENCE = 2048


def windowed(window: int | None, full: tuple[int, ...] = (), *, chunked: bool = False) -> Job:
    """A small job with local attention."""
    plain = job(training__sequence_length=SEQUENCE)
    whole, layers = plain.model.stack.kinds[0], plain.model.layers
    mixer = changed(plain.model, span=Span(window=window, chunked=chunked)).mixers[0]
    local = replace(whole, mixer=mixer)
    stack = Stack.of(whole if index in full else local for index in range(layers))
    return replace(plain, model=replace(plain.model, stack=stack))


def mean_keys(of: Job) -> float:
    """Keys of a query, in the mean over positions and layers."""
    (mixer,) = of.model.averaged.mixers
    assert isinstance(mixer, SoftmaxAttention)
    return mixer.span.keys(SEQUENCE)


def mask(window: int | None, *, chunked: bool) -> np.ndarray:
    """Which keys each query attends to, as transformers' masking_utils.py has it."""
    query, key = np.arange(SEQUENCE)[:, None], np.arange(SEQUENCE)[None, :]
    seen = key <= query
    if window is None:
        return seen
    return seen & ((key // window == query // window) if chunked else (key > query - window))


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("window", [None, 128, 512, 2048, 4096])
def test_mean_keys_are_those_of_the_mask(window: int | None, chunked: bool) -> None:
    """The closed form is the mask's mean to half a key, which the diagonal adds."""
    assert mean_keys(windowed(window, chunked=chunked)) == pytest.approx(
        mask(window, chunked=chunked).sum(axis=1).mean(), abs=0.51
    )


def test_layers_with_and_without_the_window_are_averaged() -> None:
    """Of 12 layers, 2 attend to everything and 10 to a window."""
    local, whole = (mean_keys(windowed(window)) for window in (256, None))
    assert mean_keys(windowed(256, (5, 11))) == pytest.approx((10 * local + 2 * whole) / 12)


def test_windows_save_flops() -> None:
    """Gemma 3 at 32k tokens spends less than a quarter of full attention's FLOPs: one layer in six
    is whole.
    """
    gemma = job(model="gemma-3-12b", training__sequence_length=32768)
    whole = replace(gemma, model=changed(gemma.model, span=Span()))
    share = attention_flops_per_token(gemma) / attention_flops_per_token(whole)
    assert 1 / 6 < share < 0.25


@pytest.mark.parametrize("pipeline", [1, 2, 3, 4, 16])
def test_scattered_dense_layers_are_where_they_are(pipeline: int) -> None:
    """Every stage of Llama 4 Maverick has the dense layers of its own range; together they are
    24.
    """
    maverick = job(model="llama-4-maverick", training__global_batch=64)
    per_stage = 48 // pipeline
    found = [
        int(
            stage_contents(
                maverick, Layout(data=1, pipeline=pipeline, gradient_accumulation=64), stage
            ).kinds[0]
        )
        for stage in range(pipeline)
    ]
    expected = [
        sum(1 for index in range(stage * per_stage, (stage + 1) * per_stage) if index % 2 == 0)
        for stage in range(pipeline)
    ]
    assert found == expected
    assert sum(found) == 24


@pytest.mark.parametrize(("pipeline", "chunks"), [(2, 24), (2, 12), (4, 4), (16, 3), (4, 3)])
def test_chunks_of_a_stage_have_their_own_layers(pipeline: int, chunks: int) -> None:
    """With a layer a chunk and two stages, all dense layers are on the first; columns say the same
    as scalars.
    """
    maverick = job(model="llama-4-maverick", training__global_batch=64)
    size = 48 // (pipeline * chunks)
    owner = [index // size % pipeline for index in range(48)]
    expected = [
        sum(1 for index in range(48) if owner[index] == s and index % 2 == 0)
        for s in range(pipeline)
    ]
    layout = Layout(data=1, pipeline=pipeline, virtual_pipeline=chunks, gradient_accumulation=64)
    assert [
        int(stage_contents(maverick, layout, stage).kinds[0]) for stage in range(pipeline)
    ] == expected
    assert stage_contents(maverick, layout, np.arange(pipeline)).kinds[0].tolist() == expected
