"""`dsgen catalog model FILE`: the model of a config.json beside what transformers counts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.running import run
from tests.needs import needs_transformers

TINY = {
    "model_type": "afmoe",
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "intermediate_size": 128,
    "moe_intermediate_size": 32,
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "vocab_size": 1000,
}


@pytest.mark.integration
@needs_transformers
@pytest.mark.filterwarnings("ignore")
def test_a_config_is_counted_as_transformers_counts_it(tmp_path: Path) -> None:
    """The parameters of a config are printed with those that transformers builds."""
    file = tmp_path / "config.json"
    file.write_text(json.dumps(TINY), encoding="utf-8")
    found = json.loads(run("catalog", "model", str(file), "--format", "json").stdout)
    assert found["transformers"] == f"counts {found['parameters']:,} parameters too"


def test_kinds_of_layers_are_printed_with_their_sizes() -> None:
    """Each kind of layer of a hybrid has its sizes and places; none without an MLP is a dense one,
    and a width that no layer has isn't printed.
    """
    found = json.loads(
        run("catalog", "models", "nemotron-3-nano-30b-a3b", "--format", "json").stdout
    )
    kinds = found["layers_by_kind"]
    assert sorted(i for kind in kinds for i in kind["numbers"]) == list(range(found["layers"]))
    assert [kind["layers"] for kind in kinds] == [len(kind["numbers"]) for kind in kinds]
    assert (found["dense_layers"], found["ffn"]) == (0, 0)
    parts = {part["kind"]: part for kind in kinds for part in kind["parts"]}
    assert {"heads", "head_dim", "groups", "state"} <= parts["Mamba-2 layers"].keys()

    said = " ".join(run("catalog", "models", "nemotron-3-nano-30b-a3b").stdout.split())
    assert "× Mamba-2 layers (heads 64, head_dim 64, groups 8, state 128" in said


def test_a_config_that_is_refused_says_why(tmp_path: Path) -> None:
    """A part that isn't modelled is named, with the file."""
    file = tmp_path / "odd.json"
    file.write_text(json.dumps({"model_type": "rwkv"}), encoding="utf-8")
    result = run("catalog", "model", str(file))
    assert result.exit_code == 2
    assert "rwkv has recurrent layers (RWKV), which dsgen doesn't model" in result.output


def test_a_slip_in_a_config_is_told_with_its_hint_alone(tmp_path: Path) -> None:
    """The command line is right where the file is wrong: no usage is shown, but what to write."""
    file = tmp_path / "config.json"
    config = {("hiden_size" if key == "hidden_size" else key): n for key, n in TINY.items()}
    file.write_text(json.dumps(config), encoding="utf-8")
    result = run("catalog", "model", str(file))
    assert result.exit_code == 2
    assert "Usage:" not in result.output
    said = f"Error: {file}: unknown key hiden_size\nhint: did you mean hidden_size?\n"
    assert said in result.output


def test_a_mixture_of_experts_has_its_active_parameters(tmp_path: Path) -> None:
    """Of the routed experts, those that a token is sent to; a dense model has no such line."""
    file = tmp_path / "config.json"
    file.write_text(json.dumps(TINY), encoding="utf-8")
    routed = json.loads(run("catalog", "model", str(file), "--format", "json").stdout)
    each = 3 * TINY["hidden_size"] * TINY["moe_intermediate_size"]  # type: ignore[operator]
    layers = TINY["num_hidden_layers"] - routed["dense_layers"]  # type: ignore[operator]
    assert routed["parameters"] - routed["active_parameters"] == 2 * layers * each

    file.write_text(json.dumps({**TINY, "model_type": "llama", "num_experts": 0}), encoding="utf-8")
    said = run("catalog", "model", str(file)).output
    assert not any(word in said for word in ("active", "router_scale", "maps 1", "extras"))
