"""A cluster preset with keys over it, and a folder as a model."""

from __future__ import annotations

import io
import json
from dataclasses import fields, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

import dsgen
from dsgen.catalog import load_catalog
from dsgen.findings import Finding, InvalidJob
from dsgen.job.load import load_with_findings
from dsgen.job.records import Cluster
from dsgen.programs.frameworks import FRAMEWORKS

NAME = "azure/standard_nd96amsr_a100_v4"
RACK = "gcp/a4x-highgpu-4g"
SPEC: dict[str, Any] = {
    "model": "llama-3.1-8b",
    "cluster": NAME,
    "nodes": 8,
    "training": {"global_batch": 512},
}
OVERRIDES: dict[str, tuple[object, str, object]] = {
    "network_gbits_per_s_per_node": (800, "network_bytes_per_s_per_node", 100e9),
    "network": ("ethernet", "network", "ethernet"),
    "intra_node": ("pcie", "intra_node", "pcie"),
    "link_domain": (72, "link_domain", 72),
    "host_memory_gib": (1000, "host_memory_bytes", 1000 * 2**30),
    "cpu_cores": (64, "cpu_cores", 64),
    "local_nvme_gb": (1000, "local_nvme_bytes", 1e12),
    "price_per_node_hour": (27.2, "price_per_node_hour", 27.2),
}


def cluster(**keys: object) -> Cluster:
    """The cluster of a mapping."""
    return load_with_findings({**SPEC, "cluster": keys}, FRAMEWORKS)[0].cluster


def preset(name: str = NAME) -> Cluster:
    """The cluster of a preset's name."""
    return load_with_findings({**SPEC, "cluster": name}, FRAMEWORKS)[0].cluster


def refused(spec: dict[str, Any] | io.StringIO, **overrides: object) -> tuple[Finding, ...]:
    """What is wrong with a spec."""
    with pytest.raises(InvalidJob) as caught:
        load_with_findings(spec, FRAMEWORKS, overrides=overrides)
    return caught.value.findings


def test_a_preset_alone_is_the_preset() -> None:
    """`{preset: NAME}` is the name."""
    assert cluster(preset=NAME) == preset()


@pytest.mark.parametrize("key", OVERRIDES)
def test_each_key_goes_over_the_preset_and_nothing_else_changes(key: str) -> None:
    """A key sets its own field, and the source names the catalog's and the spec's part."""
    value, field, result = OVERRIDES[key]
    found = cluster(preset=NAME, **{key: value})
    other = {"list_price": None} if key == "price_per_node_hour" else {}
    assert found == replace(
        preset(), **{field: result}, **other, source=f"{preset().source}; {key}: the job spec"
    )


def test_every_key_of_the_schema_can_go_over_a_preset() -> None:
    """No key of an inline cluster is left out above."""
    schema = json.loads(
        files("dsgen.schemas").joinpath("job.schema.json").read_text(encoding="utf-8")
    )
    keys = set(schema["$defs"]["cluster"]["properties"])
    assert keys == {*OVERRIDES, "preset", "accelerator", "accelerators_per_node"}


def test_other_accelerators_take_the_preset_s_network() -> None:
    """Another accelerator and another number of them keep the rest of the node; the fabric joins
    those of a node.
    """
    found = cluster(preset=NAME, accelerator="h100", accelerators_per_node=4)
    assert found.accelerator.name == "h100-80gb-sxm"
    assert (found.accelerators_per_node, found.link_domain) == (4, 4)
    assert found.network_bytes_per_s_per_node == preset().network_bytes_per_s_per_node


def test_a_rack_keeps_its_links() -> None:
    """Links that reach beyond a node aren't cut by a price."""
    assert (
        cluster(preset=RACK, price_per_node_hour=50).link_domain
        == load_catalog().node_types[RACK].link_domain
        == 72
    )


@pytest.mark.parametrize(
    "keys",
    [
        {"accelerator": "gb300", "accelerators_per_node": 4, "network_gbits_per_s_per_node": 3200},
        {
            "accelerator": "h100",
            "accelerators_per_node": 4,
            "network_gbits_per_s_per_node": 1600,
            "link_domain": 72,
        },
    ],
)
def test_described_racks_keep_their_links(keys: dict[str, object]) -> None:
    """A domain that is stated holds, and cards that come in racks alone have theirs."""
    assert cluster(**keys).link_domain == 72


def test_counted_racks_keep_their_links() -> None:
    """`4xgb300` is of a rack, as every node with it is; `8xh100` is a node."""
    domains = [
        load_with_findings({**SPEC, "cluster": name}, FRAMEWORKS)[0].cluster.link_domain
        for name in ("4xgb300", "gb300-nvl72", "gb200-nvl72", "8xh100")
    ]
    assert domains == [72, 72, 72, 8]


def test_a_price_that_is_a_whole_number_stays_one() -> None:
    """Numbers are as they were written."""
    assert repr(cluster(preset=NAME, price_per_node_hour=20).price_per_node_hour) == "20"


@pytest.mark.parametrize("how", ["name", "mapping"])
def test_set_goes_over_a_preset(how: str) -> None:
    """`--set cluster.price_per_node_hour=20` on a preset's name is the same as in its mapping."""
    spec = {**SPEC, "cluster": NAME if how == "name" else {"preset": NAME}}
    found = load_with_findings(spec, FRAMEWORKS, overrides={"cluster.price_per_node_hour": "20"})[
        0
    ].cluster
    assert found == cluster(preset=NAME, price_per_node_hour=20)


@pytest.mark.parametrize("order", [1, -1])
def test_set_goes_over_the_cluster_of_a_flag(order: int) -> None:
    """`--cluster` and `--set cluster.KEY` belong together, in either order."""
    overrides = dict([("cluster", RACK), ("cluster.network_gbits_per_s_per_node", "400")][::order])
    found = load_with_findings(SPEC, FRAMEWORKS, overrides=overrides)[0].cluster
    assert (found.name, found.network_bytes_per_s_per_node) == (RACK, 50e9)


def test_set_leaves_the_place_of_the_name() -> None:
    """A wrong preset is found where the file has it, and a wrong value at the flags."""
    text = io.StringIO(json.dumps({**SPEC, "cluster": "azure/nd96"}, indent=1))
    (unknown,) = refused(text, **{"cluster.price_per_node_hour": "20"})
    assert (unknown.rule, unknown.where.line) == ("SPEC011", 3)
    (wrong,) = refused(SPEC, **{"cluster.price_per_node_hour": "cheap"})
    assert (wrong.rule, wrong.where.path) == ("SPEC008", "<flags>")


def test_the_price_is_that_of_the_plan() -> None:
    """What is estimated costs what the spec says."""
    by_price = {
        price: dsgen.search(
            load_with_findings(
                {**SPEC, "cluster": {"preset": NAME, "price_per_node_hour": price}}, FRAMEWORKS
            )[0]
        )
        for price in (10, 20)
    }
    costs = [plans.plans[0].job.cluster.price_per_node_hour for plans in by_price.values()]
    assert costs == [10, 20]


def test_all_fields_of_a_cluster_come_from_the_preset() -> None:
    """A field added to `Cluster` is in the node type too."""
    found, node = preset(), load_catalog().node_types[NAME]
    assert all(
        getattr(found, f.name) == getattr(node, f.name)
        for f in fields(Cluster)
        if f.name != "accelerator"
    )


CONFIG = {
    "model_type": "llama",
    "hidden_size": 1024,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
}


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with two models and an empty folder, where the command runs."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("value", ["one", "one/", "./one", "one/config.json"])
def test_a_folder_is_a_model(models: Path, value: str) -> None:
    """A folder stands for its config.json, whether or not its name has a slash, in the file and in
    a flag.
    """
    (models / "job.yaml").write_text(json.dumps({**SPEC, "model": value}), encoding="utf-8")
    by_flag = load_with_findings(SPEC, FRAMEWORKS, overrides={"model": value})[0].model
    assert (by_flag.name, by_flag.hidden, by_flag.source) == ("one", 1024, value)
    assert load_with_findings(models / "job.yaml", FRAMEWORKS)[0].model == by_flag


def test_the_spec_s_folder_counts_not_where_the_command_runs(
    models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder in a spec is beside the spec."""
    (models / "job.yaml").write_text(json.dumps({**SPEC, "model": "one"}), encoding="utf-8")
    monkeypatch.chdir(models / "empty")
    assert load_with_findings(models / "job.yaml", FRAMEWORKS)[0].model.name == "one"


def test_a_preset_comes_before_a_folder(models: Path) -> None:
    """A folder that is called like a preset doesn't hide it."""
    (models / "llama-3.1-8b").mkdir()
    assert (
        load_with_findings(SPEC, FRAMEWORKS, overrides={"model": "llama-3.1-8b"})[0].model.hidden
        == 4096
    )
    assert (
        load_with_findings(SPEC, FRAMEWORKS, overrides={"model": "./one"})[0].model.hidden == 1024
    )


@pytest.mark.parametrize(
    ("value", "message", "hint"),
    [
        (
            "empty",
            "the folder 'empty' has no config.json",
            "give the folder that holds the model's config.json",
        ),
        (".", "the folder '.' has no config.json", "use ./one"),
        ("three", "unknown model 'three', and no such config.json", None),
        (
            "./llama31",
            "there is no './llama31', and so no config.json of a model",
            "give the path of a Hugging Face config.json, or of its folder, "
            "relative to the job spec",
        ),
    ],
)
@pytest.mark.usefixtures("models")
def test_folders_without_a_model_are_told(value: str, message: str, hint: str | None) -> None:
    """A folder that holds no config.json is named as such, with a folder in it that does."""
    (found,) = refused(SPEC, model=value)
    assert found.message == message
    assert hint in (None, found.hint)


@pytest.mark.parametrize("value", ["/models/Llama-3.1-8B", "./Llama-3.1-8B-Instruct"])
def test_a_folder_that_is_not_here_is_planned_by_its_name_with_a_note(value: str) -> None:
    """A path that isn't here, with the name of a preset, is planned as that, and a note says so."""
    job, (found,) = load_with_findings(SPEC, FRAMEWORKS, overrides={"model": value})
    assert job.model.name == "llama-3.1-8b"
    assert (found.rule, found.severity.value) == ("SPEC011", "note")
    assert found.message == f"there is no '{value}' here; its name is that of llama-3.1-8b"


def test_what_is_left_out_of_a_config_is_a_warning(models: Path) -> None:
    """A multimodal config.json is planned as its language model, and the warning says so."""
    outer = {"model_type": "llava", "text_config": CONFIG, "vision_config": {}}
    (models / "two" / "config.json").write_text(json.dumps(outer), encoding="utf-8")
    job, (found,) = load_with_findings(SPEC, FRAMEWORKS, overrides={"model": "two"})
    assert job.model.hidden == 1024
    assert (found.rule, found.severity.value) == ("SPEC021", "warning")
    assert (
        found.message == "two: llava is multimodal: its language model alone is planned, as "
        "text_config describes it"
    )


def test_a_config_that_names_each_of_its_quantized_matrices_is_read(models: Path) -> None:
    """A config.json of some megabytes, of which a quantization's list of names is the most, is a
    model like any other.
    """
    names = [f"model.layers.{i}.mlp.experts.{j}.down_proj" for i in range(100) for j in range(400)]
    config = {**CONFIG, "quantization_config": {"quant_method": "modelopt", "ignore": names}}
    file = models / "two" / "config.json"
    file.write_text(json.dumps(config), encoding="utf-8")
    assert file.stat().st_size > 1_500_000
    job, (found,) = load_with_findings(SPEC, FRAMEWORKS, overrides={"model": "two"})
    assert job.model.hidden == 1024
    assert "published quantized (modelopt)" in found.message


@pytest.mark.parametrize("section", ["", "text_config"])
def test_a_problem_of_a_config_has_its_line(models: Path, section: str) -> None:
    """What is wrong in a config.json is said with the line of its key, also in a section, and what
    is missing with the file; a wrong count of heads is one finding.
    """
    file, config = models / "one" / "config.json", {**CONFIG, "num_attention_heads": 5}
    config |= {"vocab_size": 512, "intermediate_size": 64, "num_key_value_heads": 2}
    whole = {"model_type": "llava", section: config} if section else config
    text = json.dumps(whole, indent=1)
    file.write_text(text, encoding="utf-8")
    at = next(number for number, line in enumerate(text.splitlines(), 1) if "hidden_size" in line)
    (found,) = refused(SPEC, model="one")
    assert found.message.startswith(f"one/config.json:{at}: hidden_size is 1024, ")
    assert found.hint == "set num_attention_heads: 4, or hidden_size: 1025"

    file.write_text("{}", encoding="utf-8")
    missing = {each.message.partition(" ")[0] for each in refused(SPEC, model="one")}
    assert missing == {"one/config.json:"}
