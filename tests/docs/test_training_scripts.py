"""The scripts of docs/training-script.md, started on processors by the files that dsgen writes for
a tiny model.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.cli.running import run
from tests.docs.blocks import ROOT, blocks
from tests.warm_python import warm_python
from tests.workers import HANGS_S

pytestmark = pytest.mark.integration

PAGE = ROOT / "docs" / "training-script.md"
DEEPSPEED = ROOT / "examples" / "training" / "train_deepspeed.py"
ON_CPU = Path(__file__).with_name("on_cpu.py")
#: A Llama of two layers with the tokenizer that `MAKE` makes, and two processors as its cluster.
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 384,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": True,
}
CLUSTER = {
    "accelerator": "a100-80gb-sxm",
    "accelerators_per_node": 2,
    "network_gbits_per_s_per_node": 100,
}
MAKE = """
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast
made = Tokenizer(models.BPE(unk_token="<unk>"))
made.pre_tokenizer = pre_tokenizers.ByteLevel()
special = ["<unk>", "<eos>"]
trainer = trainers.BpeTrainer(vocab_size=300, special_tokens=special)
made.train_from_iterator(open("data.json"), trainer)
tokenizer = PreTrainedTokenizerFast(tokenizer_object=made, eos_token="<eos>", unk_token="<unk>")
tokenizer.save_pretrained("tiny")
torch.manual_seed(1)  # other weights than those of a process that begins to draw
AutoModelForCausalLM.from_config(AutoConfig.from_pretrained("tiny")).save_pretrained("tiny")
"""
#: Asks the functions of both scripts, without a run.
ASK = """
import json, os, runpy, sys, types
from argparse import Namespace
os.environ["DS_ACCELERATOR"] = "cpu"
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
scripts = ("deepspeed.py.txt", "trainer.py.txt")
own, made = (types.SimpleNamespace(**runpy.run_path(name)) for name in scripts)
tokenizer = AutoTokenizer.from_pretrained("tiny")
samples = made.Samples("data.json", 64, tokenizer)
json.dump({"zero_optimization": {"stage": 0}}, open("ds_config.json", "w"))
options = {"deepspeed_config": "ds_config.json", "gradient_checkpointing": False}
options |= {"data_path": "data.json"}
options |= {"sequence_length": 64, "model_name_or_path": "tiny", "config_name": None}
rows = own.read_samples(Namespace(**options))
tiny = AutoModelForCausalLM.from_pretrained("tiny").lm_head.weight
loaded = own.build(Namespace(**options))
fresh = own.build(Namespace(**options | {"model_name_or_path": None, "config_name": "tiny"}))
peft = sys.modules["peft"] = types.ModuleType("peft")
peft.LoraConfig = dict
peft.get_peft_model = lambda model, lora: Namespace(
    lora=lora, enable_input_require_grads=lambda: None
)
adapters = lambda **given: made.add_adapters(
    None, made.Options("tiny", "data.json", 64, **given)
).lora
count = len(rows)
print(json.dumps({
    "position_ids": samples[1]["position_ids"].tolist(),
    "same rows": (
        samples[1]["input_ids"].tolist() == rows[1].tolist() == samples[1]["labels"].tolist()
    ),
    "bytes": rows.element_size(),
    "epoch": sorted(own.batch_at(rows, 0, count).tolist()) == sorted(rows.tolist()),
    "in order": own.batch_at(rows, 0, count).tolist() == rows.tolist(),
    "next epoch": (
        own.batch_at(rows, 0, count).tolist() == own.batch_at(rows, count, count).tolist()
    ),
    "resumed": own.batch_at(rows, 0, 8)[4:].tolist() == own.batch_at(rows, 4, 4).tolist(),
    "loaded": torch.equal(loaded.lm_head.weight, tiny),
    "fresh": torch.equal(fresh.lm_head.weight, tiny),
    "lora": [
        adapters(lora_rank=4),
        adapters(lora_rank=4, lora_alpha=16, lora_modules=["q_proj", "v_proj"]),
    ],
    "attention": adapters(lora_rank=4, lora_modules=["attention"])["target_modules"],
}))
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tiny model and data."""
    folder = tmp_path_factory.mktemp("made")
    (folder / "tiny").mkdir()
    (folder / "tiny" / "config.json").write_text(json.dumps(CONFIG))
    texts = [f"The sum of {a} and {b} is {a + b}." for a in range(30) for b in range(30)]
    (folder / "data.json").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    done = subprocess.run(
        [warm_python(), "-c", MAKE], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    """A copy of it, with a torchrun that starts scripts on processors."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    torchrun = tmp_path / "torchrun"
    torchrun.write_text(f'#!/bin/bash\nexec {warm_python()} {ON_CPU} "${{@:4}}"\n')
    torchrun.chmod(0o755)
    return tmp_path


def trained(folder: Path, framework: str, steps: int, arguments: list[str]) -> str:
    """Plan, write and run so many steps in all; what the ranks print."""
    job = {
        "name": "tiny",
        "framework": framework,
        "model": "tiny/config.json",
        "cluster": CLUSTER,
        "nodes": 1,
        "training": {"sequence_length": 64, "global_batch": 16, "duration": {"steps": steps}},
        "data": {"path": "data.json"},
        "output": {"checkpoints": "out", "save_interval": 2},
        "launch": {"target": "shell", "script": "train.py", "arguments": arguments},
    }
    (folder / "dsgen.yaml").write_text(json.dumps(job))
    written = run("generate", str(folder / "dsgen.yaml"), "-o", str(folder / "job"), "--force")
    assert written.exit_code == 0, written.output
    environment = {
        "PATH": f"{folder}:{os.environ['PATH']}",
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
    }
    done = subprocess.run(
        ["job/launch.sh"],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=HANGS_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


def write_script(name: str, folder: Path, target: str = "train.py") -> None:
    """Put the Trainer's script of the page, or the one for DeepSpeed, into the folder."""
    scripts = {block.options.get("title"): block.text for block in blocks(PAGE)}
    scripts["deepspeed/train.py"] = DEEPSPEED.read_text(encoding="utf-8")
    (folder / target).write_text(scripts[name])


def test_the_scripts_read_what_the_plan_counts_on(folder: Path) -> None:
    """Batches have position_ids, adapters are those of the spec, weights are loaded, and the order
    is the step's.
    """
    for name in ("trainer", "deepspeed"):
        write_script(f"{name}/train.py", folder, f"{name}.py.txt")
    done = subprocess.run(
        [warm_python(), "-c", ASK], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["position_ids"] == list(range(64))
    assert told["same rows"] and told["bytes"] == 4
    assert told["epoch"] and told["resumed"] and not told["in order"] and not told["next epoch"]
    assert told["loaded"] and not told["fresh"]
    rest = {"task_type": "CAUSAL_LM"}
    assert told["lora"][0] == {"r": 4, "lora_alpha": 8, "target_modules": "all-linear", **rest}
    assert told["lora"][1] == {
        "r": 4,
        "lora_alpha": 16,
        "target_modules": ["q_proj", "v_proj"],
        **rest,
    }
    assert told["attention"] == ["q_proj", "k_proj", "v_proj", "o_proj"]


def test_the_script_for_the_trainer_trains_and_goes_on(folder: Path) -> None:
    """The Trainer's script makes its steps, and started again goes on from the last checkpoint."""
    write_script("trainer/train.py", folder)
    arguments = ["--model_name_or_path", "tiny", "--sequence_length", "64"]
    assert len(re.findall("'loss'", trained(folder, "huggingface", 2, arguments))) == 2
    assert len(re.findall("'loss'", trained(folder, "huggingface", 4, arguments))) == 2
    state = json.loads((folder / "out" / "checkpoint-4" / "trainer_state.json").read_text())
    assert state["global_step"] == 4 and (folder / "out" / "model.safetensors").exists()


def test_the_script_for_deepspeed_trains_and_goes_on(folder: Path) -> None:
    """DeepSpeed's script makes its steps, and started again goes on from the last checkpoint."""
    write_script("deepspeed/train.py", folder)
    arguments = ["--model_name_or_path", "tiny", "--sequence_length", "64", "--steps"]
    assert re.findall(r"^step (\d)", trained(folder, "deepspeed", 2, [*arguments, "2"]), re.M) == [
        "1",
        "2",
    ]
    assert re.findall(r"^step (\d)", trained(folder, "deepspeed", 4, [*arguments, "4"]), re.M) == [
        "3",
        "4",
    ]
    assert (folder / "out" / "latest").read_text() == "global_step4"
