"""Files of Megatron-LM by release: what each has and needs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dsgen.catalog import load_catalog
from dsgen.estimate.layout import Layout
from dsgen.findings import Version
from dsgen.job.hf_config import model_from_config
from dsgen.job.needs import written_for
from dsgen.job.releases import NEWEST, OLDEST_MEGATRON
from dsgen.programs.frameworks import program_for
from dsgen.programs.megatron.options import LM, option_table
from tests.programs.plans import GPT, MODELS, make_job, make_plan

RELEASES = ((0, 16, 1), (0, 17, 1), (0, 18, 2), (0, 19, 2))
LAYOUT = Layout(data=8, tensor=2, pipeline=2, expert=2, sequence_parallel=True)


@pytest.mark.parametrize(
    ("release", "name"),
    [
        ((0, 12), "core_v0.8.0"),
        ((0, 16, 1), "core_v0.16.1"),
        ((0, 17), "core_v0.16.1"),
        ((0, 18, 5), "core_v0.18.2"),
        ((0, 19, 2), "core_v0.19.0"),
        ((1, 0), "main"),
        (None, "core_v0.19.0"),
    ],
)
def test_a_release_has_the_options_of_the_newest_table_before_it(
    release: Version | None, name: str
) -> None:
    """A release is read by the newest version of the table that is no newer; one that is not
    released yet by main, whose branch becomes it.
    """
    table = option_table(LM)
    assert table.versions[table.index(release)].startswith(name)


def test_choices_and_defaults_are_of_releases() -> None:
    """The table knows which releases have a choice, and which had another default."""
    table = option_table(LM)
    old, new = map(table.index, ((0, 16, 1), (0, 19, 2)))
    positions = table.get("--position-embedding-type")
    assert positions and positions.has_choice("yarn", new)
    assert not positions.has_choice("yarn", old)
    assert positions.has_choice("rope", old)
    sharding = table.get("--data-parallel-sharding-strategy")
    assert sharding and old in sharding.defaults["no_shard"]


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("name", MODELS)
def test_files_have_options_of_their_release(release: Version, name: str) -> None:
    """Every option in a file is one of the release that the job names."""
    job = replace(make_job(LM, MODELS[name]), megatron_version=release)
    program, table = program_for(make_plan(job, LAYOUT)), option_table(LM)
    given = [str(word) for word in program.arguments if str(word).startswith("--")]
    lacking = [
        option
        for option in given
        if (known := table.get(option)) is None or not known.is_in(table.index(release))
    ]
    assert not lacking


@pytest.mark.parametrize("release", RELEASES)
def test_the_gated_delta_rule_is_options_of_every_release(release: Version) -> None:
    """Qwen3-Next's layers are all in the arguments, which every release has, and positions are
    those of attention alone.
    """
    entry = load_catalog().models["qwen3-next-80b-a3b"]
    model = model_from_config(entry.config, name=entry.name, source=entry.source)
    job = replace(make_job(LM, model), megatron_version=release)
    program = program_for(make_plan(job, replace(LAYOUT, data=16, tensor=1, pipeline=2)))
    words = [str(word) for word in program.arguments]
    table = option_table(LM)
    given = {word: words[i + 1] for i, word in enumerate(words[:-1]) if word.startswith("--")}
    known = [table.get(option) for option in given]
    assert all(option and option.is_in(table.index(release)) for option in known)
    assert {"--attention-output-gate", "--moe-shared-expert-gate"} <= set(words)
    assert given["--experimental-attention-variant"] == "gated_delta_net"
    assert given["--linear-attention-freq"] == "4"
    assert given["--linear-num-value-heads"] == "32"
    assert "--no-rope-freq" not in given


@pytest.mark.parametrize("release", RELEASES)
def test_files_say_what_their_release_needs(release: Version) -> None:
    """Python 3.12 and triton are asked for from 0.17 on, and every release has an image."""
    versions = written_for(replace(make_job(LM, GPT), megatron_version=release))
    assert versions["Megatron-LM"] == ".".join(map(str, release))
    assert (versions["Python"] == ">=3.12") == (release >= (0, 17)) == ("triton" in versions)
    assert versions["image"].startswith("nvcr.io/nvidia/pytorch:")


def test_the_newest_is_the_default() -> None:
    """A job that names no release is for the newest, and the oldest is older."""
    assert make_job(LM, GPT).megatron_version == NEWEST["megatron-core"] == RELEASES[-1]
    assert RELEASES[0] == OLDEST_MEGATRON
