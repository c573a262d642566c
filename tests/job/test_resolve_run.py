"""What a run needs beside model and machines: read, in SI units, as the program sees it."""

from __future__ import annotations

import io

import pytest

import dsgen
from dsgen.job.records import BatchRamp, Data, Output, Reliability, Tokenizer
from tests.jobs import job


def test_what_is_left_out_is_not_given() -> None:
    """A spec without the keys gives none of them a value, but a start goes on from the last
    checkpoint.
    """
    bare = job()
    assert (bare.data, bare.output, bare.reliability) == (
        Data(),
        Output(resume=True),
        Reliability(),
    )
    assert not bare.data.path
    assert not bare.data.tokenizer.given
    assert bare.training.batch_ramp is None


def test_weights_of_data_stay_as_written() -> None:
    """Numbers between paths keep their digits, and paths their spaces, quotes and relative form."""
    text = """
model: gpt2
cluster: dgx-a100-80gb
gpus: 8
training: {global_batch: 8}
data: {path: [0.30, data/it's a corpus, 1e-1, /data/b], split: "98,2"}
"""
    read = dsgen.load_job(io.StringIO(text))
    assert read.data == Data(path=("0.30", "data/it's a corpus", "1e-1", "/data/b"), split="98,2")


def test_one_path_is_a_list_of_one() -> None:
    """`path: X` is `path: [X]`."""
    assert (
        job(data__path="/data/a").data.path == job(data__path=["/data/a"]).data.path == ("/data/a",)
    )


def test_reliability_is_in_si_units() -> None:
    """20 GB/s are 2e10 bytes/s, 500 days 4.32e7 s and 15 minutes 900 s; 0 minutes are given."""
    read = job(
        reliability__storage_gbytes_per_s=20,
        reliability__node_days_between_failures=500,
        reliability__restart_minutes=15,
    ).reliability
    assert read == Reliability(
        storage_bytes_per_s=2e10, node_s_between_failures=4.32e7, restart_s=900
    )
    assert job(reliability__restart_minutes=0).reliability.restart_s == 0


def test_the_rest_is_taken_as_it_is() -> None:
    """Tokenizer, output and batch ramp-up are the spec's values, `1e3` being an integer."""
    read = job(
        data__tokenizer={"type": "GPT2BPETokenizer", "vocab_file": "v", "merges_file": "m"},
        output={"checkpoints": "/c", "logs": "l", "save_interval": 1e3, "resume": False},
        training__batch_ramp={"start": 16, "increment": 16, "samples": 1e6},
    )
    assert read.data.tokenizer == Tokenizer(
        type="GPT2BPETokenizer", vocab_file="v", merges_file="m"
    )
    assert read.output == Output(checkpoints="/c", logs="l", save_interval=1000, resume=False)
    assert read.training.batch_ramp == BatchRamp(start=16, increment=16, samples=1000000)


@pytest.mark.parametrize("path", ["$HOME/run", "~/run", "-run", "", "a\nb", "${SCRATCH}/x"])
@pytest.mark.parametrize(
    "key", ["data__path", "output__checkpoints", "output__logs", "data__tokenizer__path"]
)
def test_a_path_that_nothing_expands_is_refused(key: str, path: str) -> None:
    """A path with $ or ~ would be that very name to the program, one with - an option: each is an
    error at its key.
    """
    with pytest.raises(dsgen.InvalidJob) as refused:
        job(**{key: path})
    (finding,) = refused.value.findings
    assert finding.where.pointer == "/" + key.replace("__", "/")


def test_replicas_at_the_wrong_level_are_sent_to_the_layout() -> None:
    """`data: 8` at the top, where data sets are, is answered with the layout's key."""
    with pytest.raises(dsgen.InvalidJob) as refused:
        job(data=8)
    (finding,) = refused.value.findings
    assert finding.hint == "write `data: 8` under `layout`"
