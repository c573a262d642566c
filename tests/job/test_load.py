"""A spec in any form becomes a `Job`, or an `InvalidJob` with everything that is wrong."""

from __future__ import annotations

import io
import json
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from dsgen.findings import InvalidJob, Severity
from dsgen.job import load as spec
from dsgen.job.records import Job
from dsgen.job.resolve import DEFAULT_HEADROOM
from dsgen.job.schema import load_schema
from dsgen.job.schema_check import OTHER_NAMES, _homes
from dsgen.programs.frameworks import FRAMEWORKS
from dsgen.units import GBIT_PER_S, GIB

SPEC: dict[str, Any] = {
    "model": "gpt3-175b",
    "cluster": "azure/standard_nd96amsr_a100_v4",
    "gpus": 1024,
    "training": {"global_batch": 1536},
}
NODE: dict[str, Any] = {
    "accelerator": "V100-32GB",
    "accelerators_per_node": 4,
    "network_gbits_per_s_per_node": 100,
}
SHAPE: dict[str, Any] = {
    "hidden_size": 1024,
    "num_hidden_layers": 4,
    "num_attention_heads": 16,
    "intermediate_size": 2048,
    "vocab_size": 1000,
}


def load(source: Any, **overrides: object) -> Job:
    """The job of a spec in any form."""
    return spec.load_with_findings(source, FRAMEWORKS, overrides=overrides)[0]


def with_(**changes: Any) -> dict[str, Any]:
    """The plain spec with some keys changed."""
    return {**SPEC, **changes}


def rules(source: Any, **overrides: object) -> list[str]:
    """The ids of what is wrong with a spec."""
    with pytest.raises(InvalidJob) as caught:
        load(source, **overrides)
    return [finding.rule for finding in caught.value.findings]


def test_what_is_left_out_has_its_default() -> None:
    """The shortest spec gives a whole job."""
    job = load(SPEC)
    assert (job.name, job.framework.name, job.deepspeed_version) == (
        "gpt3-175b",
        "megatron-deepspeed",
        (0, 19, 8),
    )
    assert (job.gpus, job.nodes, job.headroom) == (1024, 128, DEFAULT_HEADROOM)
    assert (job.training.sequence_length, job.training.precision, job.training.attention) == (
        2048,
        "bf16",
        "flash",
    )
    assert (job.training.optimizer, job.training.learning_rate, job.training.duration_tokens) == (
        "adamw",
        1e-4,
        None,
    )
    assert (job.launch.target, job.launch.script, job.launch.options) == (
        "slurm",
        "pretrain_gpt.py",
        {},
    )
    assert job.pins.tensor is None


def test_every_form_gives_the_same_job(tmp_path: Path) -> None:
    """A mapping, a stream, a YAML file and a JSON file with the same keys are the same job."""
    path = tmp_path / "job.json"
    path.write_text(
        "\N{ZERO WIDTH NO-BREAK SPACE}" + json.dumps(SPEC, indent="\t"), encoding="utf-8"
    )
    jobs = [load(SPEC), load(io.StringIO(json.dumps(SPEC))), load(path), load(str(path))]
    assert (
        len({(job.gpus, job.training, job.pins, job.model, job.cluster.name) for job in jobs}) == 1
    )
    assert jobs[2].origin.path == str(path)
    assert jobs[2].origin.locate("/training/global_batch").line == 6


def test_volta_has_neither_bf16_nor_flash_attention() -> None:
    """On V100 the defaults are what the hardware can do."""
    job = load(with_(cluster=NODE, gpus=4))
    assert (job.training.precision, job.training.attention) == ("fp16", "unfused")


@pytest.mark.parametrize(
    ("model", "attention"), [("gemma-3-27b", "flash"), ("gemma-4-31b", "unfused")]
)
def test_attention_takes_the_heads_of_every_layer(model: str, attention: str) -> None:
    """Gemma 4's global layers have heads of 512, which FlashAttention-2 doesn't take."""
    assert load(with_(model=model, cluster="nvidia/dgx-h100")).training.attention == attention


def test_an_inline_cluster_is_converted_to_si() -> None:
    """The node's own numbers arrive in bytes and bytes per second, and nodes count its
    accelerators.
    """
    node = {**NODE, "host_memory_gib": 256, "cpu_cores": 40}
    cluster = load(
        {"model": "gpt3-175b", "cluster": node, "nodes": 3, "training": {"global_batch": 12}}
    )
    assert cluster.gpus == 12
    assert cluster.cluster.network_bytes_per_s_per_node == 100 * GBIT_PER_S
    assert cluster.cluster.host_memory_bytes == 256 * GIB
    assert (cluster.cluster.intra_node, cluster.cluster.network) == ("nvswitch", "infiniband")


def test_names_are_found_in_any_case() -> None:
    """Catalog names don't depend on case."""
    assert (
        load(with_(model="GPT3-175B", cluster="Azure/Standard_ND96amsr_A100_v4")).model.layers == 96
    )


def test_an_inline_model_has_no_learned_limit() -> None:
    """With rotary positions a sequence is 4096 tokens unless the spec says otherwise."""
    job = load(with_(model=SHAPE, framework="deepspeed"))
    assert (job.name, job.training.sequence_length, job.launch.script) == (
        "custom",
        4096,
        "train.py",
    )


@pytest.mark.parametrize("named", ["tiny/config.json", "./tiny", "tiny/"])
def test_a_config_file_is_found_beside_the_spec(tmp_path: Path, named: str) -> None:
    """The path of a config.json, or of its folder, starts at the spec's folder."""
    folder = tmp_path / "tiny"
    folder.mkdir()
    (folder / "config.json").write_text(
        json.dumps({"model_type": "llama", **SHAPE}), encoding="utf-8"
    )
    path = tmp_path / "job.yaml"
    path.write_text(json.dumps(with_(model=named)), encoding="utf-8")
    job = load(path)
    assert (job.name, job.model.hidden, job.model.source) == ("tiny", 1024, named)


def test_a_flags_path_starts_where_the_command_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--model PATH` is not looked up beside the spec."""
    (tmp_path / "specs").mkdir()
    (tmp_path / "specs" / "job.json").write_text(json.dumps(SPEC), encoding="utf-8")
    (tmp_path / "tiny.json").write_text(
        json.dumps({"model_type": "llama", **SHAPE}), encoding="utf-8"
    )
    monkeypatch.chdir(tmp_path)
    assert load("specs/job.json", model="tiny.json").name == "tiny"


@pytest.mark.parametrize(
    "content", ["", "[1]", "{", "[" * 100_000, '{"model_type": "nothing"}', "\0", "x" * 2_000_000]
)
def test_a_bad_config_file_is_a_finding(tmp_path: Path, content: str) -> None:
    """Whatever is in the model's file, it ends in a finding at `model`."""
    (tmp_path / "config.json").write_text(content, encoding="utf-8")
    assert rules(with_(model=str(tmp_path / "config.json"))) == ["SPEC013"]


def test_a_batch_in_tokens_makes_sequences() -> None:
    """4 Mi tokens are 2048 sequences of 2048."""
    assert load(with_(training={"global_batch": {"tokens": 4194304}})).training.global_batch == 2048


@pytest.mark.parametrize(
    ("duration", "tokens"),
    [
        ({"tokens": "300B"}, 300e9),
        ({"steps": 10}, 10 * 1536 * 2048.0),
        ({"samples": 100, "epochs": 2}, 200 * 2048.0),
    ],
)
def test_a_duration_is_tokens(duration: dict[str, Any], tokens: float) -> None:
    """Tokens, steps and samples all become tokens."""
    assert (
        load(with_(training={"global_batch": 1536, "duration": duration})).training.duration_tokens
        == tokens
    )


def test_numbers_reach_the_script_as_they_were_written() -> None:
    """Arguments and environment values keep the user's spelling."""
    launch = "launch: {arguments: [--lr, 1e-4], environment: {VERSION: 1.10, FLAGS: 007, YES: no}}"
    job = load(io.StringIO(f"{json.dumps(SPEC)[:-1]}, {launch}}}"))
    assert job.launch.arguments == ("--lr", "1e-4")
    assert job.launch.environment == {"VERSION": "1.10", "FLAGS": "007", "YES": "no"}


def test_hostile_text_comes_through_as_data() -> None:
    """Text with shell syntax is not changed where text is free."""
    evil = "$(rm -rf ~)`id`'\";&|<>\\{{ 7*7 }}{% raw %}"
    slurm = {"container_image": evil, "modules": [evil]}
    launch = {"script": evil, "arguments": [evil], "environment": {"A": evil}, "slurm": slurm}
    job = load(with_(name=evil, launch=launch))
    assert (job.name, job.launch.script, job.launch.arguments) == (evil, evil, (evil,))
    assert job.launch.environment == {"A": evil}
    assert job.launch.options == slurm


def test_warnings_do_not_stop_a_job() -> None:
    """A part of the model that isn't planned is told, and the job loads."""
    sizes = {
        "hidden_size": 768,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "intermediate_size": 3072,
    }
    model = {"model_type": "llama", **sizes, "vocab_size": 50304, "num_nextn_predict_layers": 1}
    _, findings = spec.load_with_findings(with_(model=model), FRAMEWORKS)
    assert [(finding.rule, finding.severity) for finding in findings] == [
        ("SPEC021", Severity.WARNING)
    ]


def test_a_secret_stops_a_job() -> None:
    """A secret in the environment is an error that names its variable."""
    with pytest.raises(InvalidJob) as raised:
        load(with_(launch={"environment": {"HF_TOKEN": "x", "NCCL_DEBUG": "INFO"}}))
    assert [(found.rule, found.severity) for found in raised.value.findings] == [
        ("SPEC016", Severity.ERROR)
    ]
    assert raised.value.findings[0].message.startswith("`HF_TOKEN` is a secret")


def test_empty_keys_are_as_good_as_none() -> None:
    """A mapping whose keys are all commented out is no mapping."""
    assert (
        load(with_(layout=None, launch={"slurm": None}, memory={"headroom": None})).headroom
        == DEFAULT_HEADROOM
    )


@pytest.mark.parametrize(
    "path", ["", "\0", "/nowhere/dsgen.yaml", ".", "x" * 5000, "/dev/zero", "/proc/self/mem"]
)
def test_a_path_that_cannot_be_read_is_a_finding(path: str) -> None:
    """Missing, a directory, endless, or no path at all: one finding."""
    assert rules(path) in (["SPEC001"], ["SPEC005"])


def test_a_large_file_is_refused_unread(tmp_path: Path) -> None:
    """A sparse file of 100 GB costs nothing."""
    path = tmp_path / "large.yaml"
    with path.open("wb") as stream:
        stream.truncate(100 * 10**9)
    assert rules(path) == ["SPEC005"]


def test_streams_that_cannot_be_read_are_findings() -> None:
    """Closed, wrongly encoded and too long streams each give a finding."""
    closed = io.StringIO("x")
    closed.close()
    assert rules(closed) == ["SPEC001"]
    assert rules(io.TextIOWrapper(io.BytesIO(b"\xff\xfe"), encoding="utf-8")) == ["SPEC001"]
    assert rules(io.StringIO("x" * 2_000_000)) == ["SPEC005"]
    assert rules(io.StringIO("name: \ud800")) == ["SPEC014"]


def test_a_mapping_of_anything_is_checked() -> None:
    """Objects, cycles and odd keys in a mapping are findings."""
    cycle: dict[str, Any] = {}
    cycle["a"] = cycle
    assert rules(with_(name=object())) == ["SPEC008"]
    assert rules(cycle) == ["SPEC005"]
    assert rules(with_(name="a\0b", launch={"script": "a\n"})) == ["SPEC014", "SPEC014"]
    assert "SPEC006" in rules({1: 2})


@pytest.mark.parametrize(
    ("section", "key", "meant"),
    [
        ("layout", "tensor_parallel", "tensor"),
        ("layout", "zero", "zero_stage"),
        ("layout", "gradient_checkpointing", "recompute"),
        ("training", "batch_size", "global_batch"),
        ("training", "max-steps", "duration.steps"),
        ("training", "pp", "layout.pipeline"),
    ],
)
def test_names_of_other_programs_lead_to_the_key(section: str, key: str, meant: str) -> None:
    """A key by its name in Megatron, DeepSpeed or the Trainer is answered with the spec's own, not
    the most alike.
    """
    with pytest.raises(InvalidJob) as caught:
        load(with_(**{section: {**SPEC.get(section, {}), key: 2}}))
    assert [finding.hint for finding in caught.value.findings] == [f"did you mean `{meant}`?"]


def test_other_names_lead_to_keys_that_exist() -> None:
    """Every hint names a key of the schema, and no name is a key beside it."""
    homes = {
        **_homes(),
        **dict.fromkeys(load_schema()["$defs"]["cluster"]["properties"], ("cluster",)),
    }
    for path, names in OTHER_NAMES.items():
        section, _, key = path.rpartition(".")
        assert section in homes[key]
        assert [name for name in names.split() if section in homes.get(name, ())] == []


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        (
            {"cluster": {"node_type": "dgx-h100", "gpus": 64}, "gpus": None},
            ["did you mean `preset`?", "write it at the top level"],
        ),
        (
            {"training": {"seq_len": 4096, "batch_size": 512}},
            ["did you mean `sequence_length`?", "did you mean `global_batch`?"],
        ),
        ({"training": {}, "global_batch": 512}, ["write it under `training`"]),
        (
            {"launch": {"image": "x"}},
            ["write it under `launch.kubernetes` or under `launch.skypilot`"],
        ),
        ({"launch": {"type": "slurm"}}, ["did you mean `target`?"]),
    ],
)
def test_a_key_that_is_meant_is_not_missing_too(spec: dict[str, Any], told: list[str]) -> None:
    """A key in the wrong place, or by another name, is told once with the right one, and not as
    missing as well.
    """
    with pytest.raises(InvalidJob) as caught:
        load(with_(**spec))
    assert sorted(str(finding.hint) for finding in caught.value.findings) == sorted(told)


def test_whole_floats_are_whole_numbers() -> None:
    """`1e3` is a whole number wherever one is asked for."""
    job = load(
        io.StringIO(
            f"{json.dumps(SPEC)[:-1]}, layout: {{tensor: 8e0}}}}".replace("1024", "1.024e3")
        )
    )
    assert (job.gpus, type(job.gpus), job.pins.tensor, type(job.pins.tensor)) == (1024, int, 8, int)


def test_loading_imports_nothing_heavy() -> None:
    """The loader itself needs no torch."""
    load(SPEC)
    assert "dsgen.job.load" in sys.modules
    assert not any(name == "torch" for name in vars(sys.modules["dsgen.job.load"]))


def test_the_schema_says_what_headroom_is_kept() -> None:
    """The default in the published schema is the one that is used."""
    schema = json.loads(
        files("dsgen.schemas").joinpath("job.schema.json").read_text(encoding="utf-8")
    )
    assert schema["properties"]["memory"]["properties"]["headroom"]["default"] == DEFAULT_HEADROOM


def test_an_infinite_limit_of_a_model_is_taken() -> None:
    """A config.json's `Infinity` in a key that plays no part is no mistake of the spec, one in a
    key of the spec's own is.
    """
    limit = [0.0, float("inf")]
    model = {"model_type": "nemotron_h", "time_step_limit": limit}
    assert load(with_(model=model)).model.family == "nemotron_h"
    assert "SPEC009" in rules(with_(gpus=limit[1]))
