"""Megatron-Bridge: the words of its overrides, and what each option of Megatron-LM becomes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import dsgen
from dsgen.catalog import find_model
from dsgen.job.arguments import overrides_of
from dsgen.job.hf_config import model_from_config
from dsgen.programs.frameworks import program_for
from dsgen.programs.megatron.options import LM
from dsgen.programs.megatron.table import rows
from dsgen.programs.megatron_bridge.keys import UNSAID, key_of, layers_of, override, values_saying
from dsgen.programs.megatron_bridge.recipes import recipe_of, recipes
from dsgen.programs.program import OVERRIDES, last_step
from dsgen.render import render
from dsgen.search.plan import Plan
from tests.examples import FOLDER

SPEC = FOLDER / "llama-3.1-70b-bridge.yaml"
#: Fields of a config that are another's than the model's.
SECTIONS = {"ddp", "dataset", "train", "validation", "optimizer", "scheduler", "tokenizer"}


def plan(**overrides: Any) -> Plan:
    """The example's plan, with values of its spec replaced by their paths."""
    found = dsgen.search(dsgen.load_job(SPEC, overrides=overrides), top=1)
    assert not isinstance(found, dsgen.Infeasible)
    return found.plans[0]


def values(chosen: Plan) -> dict[str, str]:
    """Every override of a plan, by its key, as it is written."""
    return dict(overrides_of(program_for(chosen).arguments))


def lines(chosen: Plan) -> Iterator[str]:
    """The lines of `overrides.txt` that are words."""
    (file,) = (file for file in render(chosen) if file.path == OVERRIDES)
    return (line for line in file.text.splitlines() if line and not line.startswith("#"))


def test_every_option_of_megatron_has_a_key() -> None:
    """Each option that Megatron-LM's files have is said by a key of one section, or by none on
    purpose.
    """
    for row in rows(LM):
        section, _, field = key_of(row.option).partition(".")
        known = section in SECTIONS | {"model", "checkpoint", "logger"}
        assert row.option in UNSAID or (known and field), row.option


@pytest.mark.parametrize(
    ("option", "value", "expected"),
    [
        ("--hidden-size", 4096, {"model.hidden_size": 4096}),
        ("--disable-bias-linear", True, {"model.add_bias_linear": False}),
        ("--disable-bias-linear", False, {}),
        ("--cross-entropy-loss-fusion", False, {"model.cross_entropy_loss_fusion": False}),
        ("--window-size", "(127,0)", {"model.window_size": [127, 0]}),
        ("--no-rope-freq", "([0]*3+[1]*1)*2", {"model.no_rope_freq": [0, 0, 0, 1] * 2}),
        ("--main-grads-dtype", "bf16", {"optimizer.main_grads_dtype": "torch.bfloat16"}),
        ("--data-path", ("/a",), {"dataset.data_path": "/a"}),
        ("--recompute-modules", ("mlp", "moe"), {"model.recompute_modules": ["mlp", "moe"]}),
        ("--bf16", True, {}),
    ],
)
def test_said(option: str, value: object, expected: dict[str, object]) -> None:
    """An option becomes the keys that say it, in the form that Bridge reads."""
    assert values_saying(option, value) == expected


def test_weight_decay_is_what_the_schedule_sets() -> None:
    """Weight decay is three keys, for the scheduler's two overwrite the optimizer's own."""
    assert set(values_saying("--weight-decay", 0.1).values()) == {0.1}
    assert len(values_saying("--weight-decay", 0.1)) == 3


def test_pattern_of_layers() -> None:
    """A pattern of layers is written out as one number a layer."""
    assert layers_of("([0]*3+[1]*58)") == [0] * 3 + [1] * 58


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (None, "null"),
        (True, "true"),
        (0.0, "0"),
        (1e-05, "1e-05"),
        ("/data/a_b", "/data/a_b"),
        ("true", "'true'"),
        ("99,1,0", "'99,1,0'"),
        ("it's", r"'it\'s'"),
        ("a\\", r"'a\\'"),
        ("${HOME}", r"'\${HOME}'"),
        ("${{inputs.data}}/x", "'${{inputs.data}}/x'"),
        ([127, 0], "[127,0]"),
        ({"_target_": "torch.bfloat16", "_call_": False}, "{_target_:torch.bfloat16,_call_:false}"),
    ],
)
def test_words(value: object, written: str) -> None:
    """A value is written as Hydra reads it back, with text quoted where it would be something
    else.
    """
    assert override("key", value) == f"key={written}"


def test_layout_is_written() -> None:
    """The degrees of the plan, its batch and its length are overrides with the plan's numbers."""
    chosen = plan()
    written, layout = values(chosen), chosen.layout
    assert int(written["model.tensor_model_parallel_size"]) == layout.tensor
    assert int(written["model.pipeline_model_parallel_size"]) == layout.pipeline
    assert int(written["train.global_batch_size"]) == layout.global_batch
    assert int(written["train.train_iters"]) == chosen.job.training.steps
    assert last_step(chosen, program_for(chosen)) == chosen.job.training.steps


def test_yarn_is_written() -> None:
    """A model from scratch has its YaRN's numbers; where a recipe has them, nothing is missing."""
    job = dsgen.load_job(SPEC, overrides={"model": "gpt-oss-20b", "gpus": 8})
    found = dsgen.search(job, top=1)
    assert not isinstance(found, dsgen.Infeasible)
    written = values(found.plans[0])
    assert written["model.position_embedding_type"] == "yarn"
    assert written["model.yarn_rotary_scaling_factor"] == "32"
    assert written["model.yarn_correction_range_round_to_int"] == "false"
    _, findings = dsgen.check_job(LORA, overrides={"model": "gpt-oss-20b"})
    assert "MLM045" not in [finding.rule for finding in findings]


def test_nothing_is_left_to_the_recipe() -> None:
    """Without folders, data or tokenizer, the recipe's own are set back."""
    written = values(plan(data={}, output={}))
    assert written["checkpoint.save"] == written["checkpoint.load"] == "null"
    assert written["checkpoint.save_interval"] == written["logger.tensorboard_dir"] == "null"
    assert written["tokenizer.tokenizer_type"] == "NullTokenizer"
    assert int(written["tokenizer.vocab_size"]) == 128255
    assert written["scheduler.lr_warmup_iters"] == "0"


@pytest.mark.parametrize(
    ("training", "expected"),
    [
        ({"precision": "bf16"}, "bf16_mixed"),
        ({"precision": "fp16"}, "fp16_mixed"),
        ({"precision": "bf16", "gradient_dtype": "same"}, "grad_reduce_in_fp32:false"),
        ({"precision": "fp8"}, "fp8:hybrid,fp8_recipe:delayed,fp8_param_gather:false"),
    ],
)
def test_precision(training: dict[str, str], expected: str) -> None:
    """The precision is one block, which has the type of the gradients and the recipe of fp8."""
    stated = {f"training.{key}": value for key, value in training.items()}
    assert expected in values(plan(**stated))["mixed_precision"]


def test_plain_data_parallelism_is_said_twice() -> None:
    """Without ZeRO, both switches of the distributed optimizer are off: the recipe's is on."""
    small = {"model": "llama-3.2-1b", "gpus": 8, "layout": {"zero_stage": 0}}
    written = values(plan(**small))
    assert written["ddp.use_distributed_optimizer"] == "false"
    assert written["optimizer.use_distributed_optimizer"] == "false"


def test_own_overrides_replace_ours() -> None:
    """An override in launch.arguments stands alone, and a length of its own replaces the plan's."""
    words = ["train.train_samples=51200", "model.apply_rope_fusion=false"]
    written = list(program_for(plan(**{"launch.arguments": words})).arguments)
    assert [word for word in written if "apply_rope_fusion" in str(word)] == [words[1]]
    assert not [word for word in written if str(word).startswith("train.train_iters")]


def test_the_file_has_the_words() -> None:
    """`overrides.txt` has the same words as a target's file that holds them itself."""
    chosen = plan()
    inline = [str(word) for word in program_for(chosen).arguments if "=" in str(word)]
    assert list(lines(chosen)) == inline
    (start,) = (file for file in render(chosen) if file.path == "launch.sbatch")
    assert not any(word in start.text for word in inline if word.startswith("model."))


def test_a_release_brings_its_core() -> None:
    """`megatron_bridge_version` decides the release of Megatron-Core; a stated one is refused."""
    job = dsgen.load_job(SPEC, overrides={"megatron_bridge_version": "0.6.1"})
    assert job.megatron_version == (0, 19, 0)
    for key, value, text in (
        ("megatron_version", "0.19.2", "brings its own"),
        ("megatron_bridge_version", "0.5.0", "older than 0.6.0"),
    ):
        with pytest.raises(dsgen.InvalidJob, match=text):
            dsgen.load_job(SPEC, overrides={key: value})


def test_a_job_of_megatron_lm_plans_alike() -> None:
    """The same job with Megatron-LM of that release has the same layout, memory and time."""
    ours = plan()
    job = dsgen.load_job(SPEC, overrides={"framework": "megatron-lm", "megatron_version": "0.19.0"})
    found = dsgen.search(replace(job), top=1)
    assert not isinstance(found, dsgen.Infeasible)
    theirs = found.plans[0]
    assert (ours.layout, ours.memory, ours.step_time) == (
        theirs.layout,
        theirs.memory,
        theirs.step_time,
    )


SFT, LORA = FOLDER / "qwen3-8b-sft-bridge.yaml", FOLDER / "qwen3-30b-a3b-lora-bridge.yaml"


def tuned(spec: Path, **overrides: Any) -> Plan:
    """The plan of an example that fine-tunes, with values of its spec replaced by their paths."""
    found = dsgen.search(dsgen.load_job(spec, overrides=overrides), top=1)
    assert not isinstance(found, dsgen.Infeasible)
    return found.plans[0]


def test_recipes_are_of_known_models() -> None:
    """Every recipe is for a model of the catalog, and has adapters that a spec can say."""
    for name, recipe in recipes().items():
        entry = find_model(name)
        assert entry is not None and entry.name == name
        assert recipe.modes == ("sft", "lora")
        assert set(recipe.lora.modules) <= {"all-linear", "attention", "q_proj", "k_proj", "v_proj"}


def test_fine_tuning_leaves_layers_to_the_recipe() -> None:
    """The model's own recipe is chosen, and no override says a size of its layers; the plan's
    degrees, weights and packed samples are overrides.
    """
    chosen = tuned(SFT)
    words = list(map(str, program_for(chosen).arguments))
    assert words[:6] == ["--model", "qwen3_8b", "--mode", "sft", "--dataset", "local-jsonl"]
    written = values(chosen)
    assert "model.num_layers" not in written and "model.hidden_size" not in written
    assert int(written["model.pipeline_model_parallel_size"]) == chosen.layout.pipeline
    assert written["train.micro_batch_size"] == "1"
    assert written["checkpoint.pretrained_checkpoint"] == "/data/models/Qwen3-8B"
    assert written["dataset.dataset_root"] == "/data/samples"
    assert written["scheduler.lr_decay_iters"] == "null"


def test_adapters_are_the_recipes() -> None:
    """Without keys of its own, LoRA trains the recipe's adapters, and no override names them."""
    chosen = tuned(LORA)
    assert chosen.job.training.lora == recipes()["qwen3-30b-a3b"].lora
    assert not [key for key in values(chosen) if key.startswith("peft")]
    assert chosen.memory.optimizer_bytes < 2**30 < chosen.memory.parameters_bytes


def test_a_config_of_the_same_shape_has_the_recipe() -> None:
    """A folder's config.json is known by its sizes, whatever it is called, and another isn't."""
    entry = find_model("qwen3-8b")
    assert entry is not None
    for layers, stem in ((36, "qwen3_8b"), (35, None)):
        config = {**entry.config, "num_hidden_layers": layers}
        model = model_from_config(config, name="ours", source="config.json")
        recipe = recipe_of(model)
        assert (recipe and recipe.stem) == stem


def test_a_block_is_set_anew() -> None:
    """A section that the recipe has is null before it is set as a whole: Hydra would merge both."""
    chosen = tuned(SFT, **{"training.gradient_dtype": "same"})
    words = [word for word in map(str, program_for(chosen).arguments) if "mixed_" in word]
    assert words[0] == "mixed_precision=null"
    assert words[1].startswith("mixed_precision={_target_:")


@pytest.mark.parametrize(("mode", "refused"), [("pretrain", False), ("sft", True)])
def test_a_mode_is_refused_where_no_recipe_heeds_it(mode: str, refused: bool) -> None:
    """A spec that is no file is refused, too: it would train from scratch. The default is true of
    every framework.
    """
    spec: dict[str, Any] = {
        "framework": "deepspeed",
        "model": "llama-3-8b",
        "cluster": "nvidia/dgx-h100",
        "nodes": 1,
        "training": {"global_batch": 64, "sequence_length": 2048, "mode": mode},
    }
    if not refused:
        assert dsgen.load_job(spec).training.mode == mode
        return
    with pytest.raises(dsgen.InvalidJob, match=r"training.mode is not available .*\[BRG004\]"):
        dsgen.load_job(spec)
