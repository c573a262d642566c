"""Launches as files, each folder of `cases` with the whole spec that `dsgen init --from` makes of
it.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

import dsgen
from dsgen.draft import Draft, LeftOut, carry_over, draft_run, find_runs
from dsgen.findings import Location
from dsgen.search.refine import open_fields
from dsgen.text.around import checking
from tests.cli.running import run

FOLDER = Path(__file__).parent / "cases"
CASES = sorted(path.name for path in FOLDER.iterdir() if path.is_dir())
#: What the files of every case leave open.
GOLDEN = Path(__file__).parent.parent / "golden"
FLAGS = ("--model", "llama-2-7b", "--cluster", "dgx-a100")


def drafted(paths: list[Path], answers: Mapping[str, object] | None = None) -> Draft:
    """The spec of the first run of these files, before options of its script are carried over."""
    first, *others = find_runs(paths)[1]
    return draft_run(first, others, answers or {})


def adopted(name: str, **answers: object) -> Draft:
    """The run of a case, its spec settled."""
    made = drafted([FOLDER / name], answers)
    carry_over(made)
    return made


def files_of(made: Draft) -> dict[str, str]:
    """The files of a spec."""
    found = dsgen.search(dsgen.load_job(made.spec), top=1)
    assert isinstance(found, dsgen.SearchResult)
    return {file.path: file.text for file in dsgen.render(found.plans[0])}


def test_a_container_is_that_of_the_spec() -> None:
    """The image and the mounts in files that dsgen wrote are those of the spec made of them."""
    slurm = drafted([GOLDEN / "qwen3-8b-sft-bridge"], {}).spec["launch"]["slurm"]
    assert slurm["container_image"] == "registry.example.com#training/megatron-bridge:0.6.0"
    assert "/data:/data" in slurm["container_mounts"]


@pytest.mark.parametrize("name", CASES)
def test_spec_is_as_expected(name: str, update_golden: bool, tmp_path: Path) -> None:
    """A launch that exists gives the spec in `expected.yaml`, its notes included, whatever flags
    add.
    """
    spec, expected = tmp_path / "dsgen.yaml", FOLDER / name / "expected.yaml"
    names_model = ("bridge", "bridge_length", "bridge_sft", "front_end", "front_end_trainer")
    has_model = name in ("old_megatron", "uncounted", *names_model)
    flags = () if name == "megatron" else FLAGS[2:] if has_model else FLAGS
    made = run("init", "--from", str(FOLDER / name), *flags, "-o", str(spec))
    assert made.exit_code == 0, made.output
    text = re.sub(r"\$schema=.*", "$schema=SCHEMA", spec.read_text())
    if update_golden:
        expected.write_text(text)
    assert text == expected.read_text()


@pytest.mark.parametrize("name", [name for name in CASES if "fsdp" in name or name == "megatron"])
def test_search_of_a_launch_has_its_layout_alone(name: str) -> None:
    """The spec of a launch of the Trainer or of Megatron leaves no key of the layout open, since
    defaults of the program decide those that no file says.
    """
    answers = {} if name == "megatron" else {"model": "llama-2-7b", "cluster": "dgx-a100"}
    assert not open_fields(dsgen.load_job(adopted(name, **answers).spec))


@pytest.mark.parametrize("more", ["", ', "split_batches": true'])
def test_reduction_of_each_micro_batch_is_read(tmp_path: Path, more: str) -> None:
    """`accelerator_config` decides when gradients are reduced; what else it says is named."""
    shutil.copytree(FOLDER / "fsdp_trainer", tmp_path, dirs_exist_ok=True)
    script = tmp_path / "train.sh"
    config = f'{{"gradient_accumulation_kwargs": {{"sync_each_batch": true}}{more}}}'
    script.write_text(f"{script.read_text().rstrip()} --accelerator_config '{config}'\n")
    made = draft_run(
        find_runs([tmp_path])[1][0], (), {"model": "llama-2-7b", "cluster": "dgx-a100"}
    )
    carry_over(made)
    assert made.get("layout.sync_each_batch") is True
    assert "--accelerator_config" not in made.get("launch.arguments")
    assert bool(more) is any("split_batches" in left.what for left in made.left)


@pytest.mark.parametrize("name", ["fsdp_trainer", "trainer", "megatron", "accelerate"])
def test_files_that_a_script_names_are_read_with_it(name: str) -> None:
    """A script by itself gives the spec of its folder: the files that its launch names are read."""
    answers = {"model": "llama-2-7b", "cluster": "dgx-a100"}
    script = next(path for path in (FOLDER / name).iterdir() if path.suffix in (".sh", ".sbatch"))
    specs = []
    for place in (FOLDER / name, script):
        made = drafted([place], answers)
        carry_over(made)
        specs.append(made.spec)
    assert specs[0] == specs[1]


def test_files_outside_of_the_folder_are_not_read(tmp_path: Path) -> None:
    """A config that a launch names by a path out of its folder is not read."""
    for folder in ("job", "other"):
        shutil.copytree(FOLDER / "fsdp_trainer", tmp_path / folder)
    (tmp_path / "job" / "fsdp.json").unlink()
    script = tmp_path / "job" / "train.sh"
    script.write_text(script.read_text().replace("fsdp.json", "../other/fsdp.json"))
    with checking([script]):
        reading = find_runs([script])[0]
    assert {Path(document.path) for document in reading.documents} == {script}


def test_arguments_that_transformers_no_longer_has_are_renamed_or_named(tmp_path: Path) -> None:
    """An argument that only has another name today is written by it; another one is named."""
    shutil.copytree(FOLDER / "trainer", tmp_path, dirs_exist_ok=True)
    script = tmp_path / "train.sh"
    script.write_text(script.read_text().replace("--bf16 True", "--bf16 True --adafactor True"))
    made = draft_run(
        find_runs([tmp_path])[1][0], (), {"model": "llama-2-7b", "cluster": "dgx-a100"}
    )
    carry_over(made)
    words = made.spec["launch"]["arguments"]
    assert words[words.index("--warmup_steps") + 1] == "0.03"
    assert not {"--warmup_ratio", "--adafactor"} & set(words)
    reasons = {left.what: left.why for left in made.left}
    assert "--warmup_steps 0.03" in reasons["--warmup_ratio 0.03"]
    assert "optim adafactor" in reasons["--adafactor True"]


def test_batch_without_gpus_names_them() -> None:
    """A config with all three batch keys is for train / (micro × accumulation) GPUs."""
    assert adopted("ds_stage2", model="llama-2-7b", cluster="dgx-a100").spec["gpus"] == 8


def test_config_of_the_new_files_is_read_alike() -> None:
    """Values that a config has, under their old names too, are in the config that is written from
    the spec.
    """
    made = adopted("ds_stage2", model="llama-2-7b", cluster="dgx-a100")
    new: dict[str, Any] = json.loads(files_of(made)["ds_config.json"])
    assert new["bf16"] == {"enabled": True}
    assert new["zero_optimization"]["offload_optimizer"]["device"] == "cpu"
    assert new["zero_optimization"]["reduce_bucket_size"] == 300_000_000
    assert "overlap_comm" not in new["zero_optimization"]
    assert new["optimizer"]["params"]["betas"] == [0.8, 0.99]
    assert new["scheduler"] == {"type": "WarmupLR", "params": {"warmup_num_steps": 500}}


def test_what_deepspeed_refuses_is_named() -> None:
    """A key that this DeepSpeed refuses is left out, and said to be."""
    made = adopted("ds_stage2", model="llama-2-7b", cluster="dgx-a100")
    assert "nebula" not in made.spec["deepspeed_config"]
    assert any(note.what == "nebula" for note in made.left)


def test_arguments_keep_what_was_trained() -> None:
    """Options that a plan would set otherwise keep the value, or the parser's default, that the
    files had.
    """
    made = adopted("megatron")
    words = made.spec["launch"]["arguments"]
    pairs = dict(zip(words[::2], words[1::2], strict=True))
    assert pairs == {
        "--log-interval": "20",
        "--attention-backend": "auto",
        "--lr-decay-style": "linear",
        "--lr-warmup-iters": "0",
    }


def test_secrets_stay_out() -> None:
    """No secret of the files is in the spec or in a note."""
    made = adopted("megatron")
    told = f"{made.spec} {' '.join(map(str, made.left))}"
    assert "0123456789abcdef" not in told
    assert "WANDB_API_KEY" in told


def test_answers_go_before_files() -> None:
    """More GPUs than the batch of the files has replicas for open the accumulation, and say so."""
    made = adopted("ds_stage2", model="llama-2-7b", cluster="dgx-a100", gpus=16)
    assert "gradient_accumulation" not in made.spec["layout"]
    assert any("gradient_accumulation" in note.what for note in made.left)


def test_answered_target_takes_the_place_of_the_files() -> None:
    """Options of the scheduler that the files are for don't stay where another is asked for."""
    made = adopted("megatron", **{"launch.target": "kubernetes"})
    assert "slurm" not in made.spec["launch"]


@pytest.mark.parametrize(
    "name", ["deepseek-v3", "qwen2.5-7b-finetune", "bloom-176b", "llama-3-8b-lora"]
)
def test_machines_of_written_files_are_their_plan_s(name: str, tmp_path: Path) -> None:
    """A folder that dsgen wrote tells the machines, length and adapters of its plan, which no
    script names.
    """
    made = run("init", "--from", str(GOLDEN / name), "-o", str(tmp_path / "dsgen.yaml"))
    assert made.exit_code == 0, made.output
    before, after = map(
        dsgen.load_job, (GOLDEN.parents[1] / "examples" / f"{name}.yaml", tmp_path / "dsgen.yaml")
    )
    facts = (
        "accelerator",
        "accelerators_per_node",
        "network",
        "network_bytes_per_s_per_node",
        "price_per_node_hour",
    )
    assert [getattr(after.cluster, fact) for fact in facts] == [
        getattr(before.cluster, fact) for fact in facts
    ]
    assert (after.name, after.training.sequence_length) == (
        before.name,
        before.training.sequence_length,
    )
    assert after.training.lora == before.training.lora


@pytest.mark.parametrize("name", ["qwen3-8b-sft-bridge", "qwen3-30b-a3b-lora-bridge"])
def test_fine_tuning_comes_back(name: str, tmp_path: Path) -> None:
    """A folder that dsgen wrote for Megatron-Bridge gives the job and the layout that it is of."""
    made = run("init", "--from", str(GOLDEN / name), "-o", str(tmp_path / "dsgen.yaml"))
    assert made.exit_code == 0, made.output
    before, after = map(
        dsgen.load_job, (GOLDEN.parents[1] / "examples" / f"{name}.yaml", tmp_path / "dsgen.yaml")
    )
    assert replace(after.training, duration_steps=None, duration_tokens=None) == replace(
        before.training, duration_steps=None, duration_tokens=None
    )
    assert (after.model.name, after.gpus, after.launch.arguments) == (
        before.model.name,
        before.gpus,
        (),
    )
    planned = json.loads((GOLDEN / name / "plan.json").read_text())["layout"]
    for key in ("tensor", "pipeline", "micro_batch", "zero_stage"):
        assert getattr(after.pins, key) == planned[key]


@pytest.mark.parametrize("name", ["llama-3-8b-kubernetes", "qwen2.5-7b-skypilot"])
def test_options_of_services_come_back(name: str, tmp_path: Path) -> None:
    """Volumes, buckets, secrets and what else a job of a service asks for are in the spec again."""
    made = run("init", "--from", str(GOLDEN / name), "-o", str(tmp_path / "dsgen.yaml"))
    assert made.exit_code == 0, made.output
    before, after = map(
        dsgen.load_job, (GOLDEN.parents[1] / "examples" / f"{name}.yaml", tmp_path / "dsgen.yaml")
    )
    assert {**before.launch.options, **after.launch.options, "kind": None} == {
        **after.launch.options,
        "kind": None,
    }
    assert "HF_TOKEN" not in made.output


def test_limit_and_identity_of_azureml_come_back(tmp_path: Path) -> None:
    """The time limit and the identity of an AzureML job are keys of the spec."""
    spec = tmp_path / "dsgen.yaml"
    for name, key in (
        ("llama-3-70b-deepspeed", "time_limit: "),
        ("gpt-2t-zero3-offload", "identity: managed"),
    ):
        run(
            "init",
            "--from",
            str(GOLDEN / name),
            "--model",
            "llama-3-70b",
            "-o",
            str(spec),
            "--force",
        )
        text, _, left = spec.read_text().partition("# Not carried over")
        assert key in text and "limits" not in left and "identity" not in left


def test_mounted_places_of_azureml_come_back(tmp_path: Path) -> None:
    """Paths in inputs and outputs are values, and the config that is written anew is no input of
    the spec's own.
    """
    made = run(
        "init", "--from", str(GOLDEN / "gpt-2t-zero3-offload"), "-o", str(tmp_path / "dsgen.yaml")
    )
    assert (made.exit_code, "not carried over" in made.output) == (0, False), made.output
    launch = dsgen.load_job(tmp_path / "dsgen.yaml").launch
    assert "${{inputs.gpt2}}/vocab.json" in launch.arguments
    inputs = launch.options["inputs"]
    assert isinstance(inputs, dict) and sorted(inputs) == ["data", "gpt2"]


def test_entries_of_pods_that_no_spec_has_are_named(tmp_path: Path) -> None:
    """A volume that is no claim is told, with its place; the others are in the spec."""
    text = (GOLDEN / "llama-3-8b-kubernetes" / "job.yaml").read_text()
    (tmp_path / "job.yaml").write_text(
        text.replace("claimName: training-data", "other: training-data")
    )
    spec = tmp_path / "dsgen.yaml"
    run(
        "init",
        "--from",
        str(tmp_path),
        "--model",
        "llama-3-8b",
        "--cluster",
        "dgx-h100",
        "-o",
        str(spec),
    )
    assert "volumes: launch.kubernetes.volumes has claims alone" in spec.read_text()
    assert "volumes: [checkpoints:/checkpoints]" in spec.read_text()


@pytest.mark.parametrize(
    "text", ["[" * 1000, "[]", '{"job": {"cluster": {"name": 1}}}', "{", '{"job": {"cluster": []}}']
)
def test_a_plan_that_is_none_tells_nothing(text: str, tmp_path: Path) -> None:
    """A plan.json of another program, or a broken one, names no machines."""
    for file in (GOLDEN / "bloom-176b").iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "plan.json").write_text(text)
    assert drafted([tmp_path], {}).get("cluster") is None


def test_a_named_file_of_arguments_is_that_one(tmp_path: Path) -> None:
    """Of two files of TrainingArguments the launch line's is taken by its whole name."""
    arguments = '{{"output_dir": "out", "per_device_train_batch_size": {}, "learning_rate": 1e-4}}'
    for name, micro in (("a-args.json", 2), ("args.json", 4)):
        (tmp_path / name).write_text(arguments.format(micro))
    (tmp_path / "train.sh").write_text("torchrun --nproc-per-node=8 train.py ./args.json\n")
    runs = find_runs([tmp_path])[1]
    assert runs[0].trainer is not None
    assert runs[0].trainer.path.endswith("/args.json")


def test_json_of_something_else_is_no_config(tmp_path: Path) -> None:
    """A JSON file without a key of DeepSpeed's has no run, though it is named by itself."""
    (tmp_path / "results.json").write_text('{"results": {"accuracy": 0.5}}')
    assert find_runs([tmp_path / "results.json"])[1] == ()


@pytest.mark.parametrize(
    ("mounts", "kept"), [("<DIRECTORIES>", None), ("/scratch,/a:/b:ro", ["/scratch", "/a:/b:ro"])]
)
def test_what_a_spec_refuses_is_left_out_alone(
    tmp_path: Path, mounts: str, kept: list[str] | None
) -> None:
    """A value that a spec can't have is left out and the rest is a spec; a mount of one place is a
    value.
    """
    script = "#!/bin/bash\n#SBATCH --nodes=1\n#SBATCH --gpus-per-node=8\n#SBATCH --partition=gpu\n"
    line = (
        f"srun --container-image=a --container-mounts={mounts} torchrun "
        "--nproc-per-node 8 train.py\n"
    )
    (tmp_path / "train.sbatch").write_text(script + line)
    (tmp_path / "ds.json").write_text(
        '{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 1}}'
    )
    made = drafted([tmp_path], {"model": "llama-2-7b", "cluster": "dgx-a100"})
    carry_over(made)
    dsgen.load_job(made.spec)
    slurm = made.spec["launch"]["slurm"]
    assert (slurm.get("container_mounts"), slurm["partition"]) == (kept, "gpu")


def test_later_runs_are_named() -> None:
    """Of several runs one becomes the spec, and the others are named with their places."""
    made = drafted([FOLDER / "megatron", FOLDER / "trainer"])
    assert made.spec["framework"] == "megatron-lm"
    assert any(note.what == "run_clm.py" and "another run" in note.why for note in made.left)


def test_secrets_stay_out_without_a_plan(tmp_path: Path) -> None:
    """Options that hold secrets are named, not carried over, also where the model has no plan to
    compare with.
    """
    line = "--hub_token hf_abcdefghijklmnopqrstuvwxyz012345 --password hunter3 --seed 3\n"
    (tmp_path / "train.sh").write_text(f"deepspeed train.py --deepspeed ds.json {line}")
    (tmp_path / "ds.json").write_text(
        '{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 1}}'
    )
    (found,) = find_runs([tmp_path])[1]
    made = draft_run(found, answers={"model": "of-nobody", "cluster": "dgx-a100", "gpus": 8})
    assert carry_over(made).plan is None
    told = f"{made.spec} {' '.join(map(str, made.left))}"
    assert "hf_abc" not in told
    assert "hunter3" not in told
    assert {"--hub_token", "--password"} <= {note.what for note in made.left}
    assert made.spec["launch"]["arguments"] == ["--seed", "3"]


def test_a_long_note_is_cut_behind_its_mask() -> None:
    """Of what is named at length its begin is shown, without a secret that the cut goes through."""
    what = f"--x {'a' * 150} --hub_token hf_abcdefghijklmnopqrstuvwxyz012345 --y {'b' * 50}"
    said = str(LeftOut(what, Location(path="a.sh"), "why"))
    assert said.endswith("...: why")
    assert "hf_a" not in said


def test_stages_of_one_size_are_not_written(tmp_path: Path) -> None:
    """A list of chunks that gives every stage the same layers sets none of the first and the
    last.
    """
    (tmp_path / "launch.sbatch").write_text((GOLDEN / "deepseek-v3" / "launch.sbatch").read_text())
    spec = tmp_path / "dsgen.yaml"
    made = run("init", "--from", str(tmp_path), "--cluster", "dgx-a100", "-o", str(spec))
    assert made.exit_code == 0, made.output
    assert "virtual_pipeline" in spec.read_text() and "stage_layers" not in spec.read_text()
    assert (
        "first_k_dense_replace: 3" in spec.read_text()
        and "--moe-layer-freq" not in spec.read_text()
    )


def test_a_recipe_that_is_started_without_arguments_is_named_at_its_script(tmp_path: Path) -> None:
    """A launch of Megatron-Bridge that names no recipe says so at the line of the script."""
    (tmp_path / "run.sh").write_text("#!/bin/bash\ntorchrun scripts/training/run_recipe.py\n")
    flags = ("--model", "llama-3-8b", "--gpus", "8", "--cluster", "dgx-h100")
    made = run("init", "--from", str(tmp_path), *flags, "-o", str(tmp_path / "dsgen.yaml"))
    assert "run.sh:2" in made.output and "doesn't know which model" in made.output


def test_stages_beyond_count_are_refused_by_their_rule(tmp_path: Path) -> None:
    """A launch of a million stages gets a spec and the rule that it breaks, and no list of them."""
    text = (GOLDEN / "inline-model" / "launch.sbatch").read_text()
    size = "--pipeline-model-parallel-size"
    assert f"{size} 1\n" in text
    (tmp_path / "launch.sbatch").write_text(text.replace(f"{size} 1\n", f"{size} 983737\n"))
    spec = tmp_path / "dsgen.yaml"
    flags = ("--gpus", "32", "--cluster", "dgx-h100")
    made = run("init", "--from", str(tmp_path), *flags, "-o", str(spec))
    assert f"{size} 983737 does not divide 32 GPUs" in made.output
    assert "--pipeline-model-parallel-layout" not in made.output


def test_numbers_out_of_range_are_left_out(tmp_path: Path) -> None:
    """A number that no program could use is no batch size, and no crash."""
    line = (
        f"torchrun --nproc_per_node 8 train.py --per_device_train_batch_size 1{'0' * 400} "
        "--deepspeed ds.json\n"
    )
    (tmp_path / "train.sh").write_text(f"#!/bin/bash\n{line}")
    assert find_runs([tmp_path])[1] != ()
    run = draft_run(find_runs([tmp_path])[1][0])
    assert run.get("layout.micro_batch") is None or isinstance(run.get("layout.micro_batch"), int)


@pytest.mark.parametrize("value", ["8x", "0", "-1", "1.5", "null", "[1]", "9" * 99])
def test_degrees_that_count_nothing_are_left_out(value: str, tmp_path: Path) -> None:
    """An override whose value is no count pins nothing, and nothing is derived from it."""
    (tmp_path / "run.sh").write_text(
        "#!/bin/bash\ntorchrun --nproc-per-node=8 scripts/training/run_recipe.py --mode sft "
        f"--recipe qwen3_600m_sft_128k_config model.context_parallel_size={value}\n"
    )
    spec = tmp_path / "dsgen.yaml"
    flags = ("--gpus", "8", "--cluster", "dgx-h100")
    made = run("init", "--from", str(tmp_path), *flags, "-o", str(spec))
    assert made.exit_code == 0, made.output
    assert "context" not in yaml.safe_load(spec.read_text()).get("layout", {})


def test_configs_that_no_spec_can_hold_are_left_out(tmp_path: Path) -> None:
    """A value that is nested deeper than a spec may be is named, and the rest goes over."""
    deep = "[" * 40 + "]" * 40
    (tmp_path / "ds_config.json").write_text(
        f'{{"train_batch_size": 64, "my_own": {deep}, "comms_logger": {{"enabled": true}}}}'
    )
    spec = tmp_path / "spec.yaml"
    made = run(
        "init",
        "--from",
        str(tmp_path),
        "--model",
        "gpt2",
        "--cluster",
        "dgx-a100",
        "--gpus",
        "8",
        "-o",
        str(spec),
    )
    assert "my_own: the mapping is nested more than 32 deep" in made.output
    assert "comms_logger" in spec.read_text() and "my_own" not in spec.read_text().partition("#")[0]


@pytest.mark.parametrize(("line", "recompute"), [("", "full"), ("true", "none")])
def test_llama_factory_checkpoints_unless_told(tmp_path: Path, line: str, recompute: str) -> None:
    """LLaMA-Factory checkpoints activations by default, and the spec of its file does too."""
    off = f"disable_gradient_checkpointing: {line}\n" if line else ""
    (tmp_path / "sft.yaml").write_text(
        "model_name_or_path: Qwen/Qwen2.5-7B\nstage: sft\ndo_train: true\nfinetuning_type: full\n"
        "dataset: identity\ntemplate: qwen\ncutoff_len: 4096\noutput_dir: saves/q\nbf16: true\n"
        f"deepspeed: ds.json\nper_device_train_batch_size: 1\n{off}"
    )
    (tmp_path / "ds.json").write_text(
        '{"train_micro_batch_size_per_gpu": "auto", "train_batch_size": "auto",'
        ' "zero_optimization": {"stage": 3}}'
    )
    made = drafted([tmp_path], {"model": "qwen2.5-7b", "cluster": "dgx-a100", "gpus": 8})
    assert made.spec["layout"]["recompute"] == recompute


def test_an_axolotl_launch_is_planned(tmp_path: Path) -> None:
    """The YAML of axolotl says batch, length, adapters and sharding; its launch line the GPUs."""
    (tmp_path / "run.sh").write_text("#!/bin/bash\naxolotl train q.yaml --num-processes 8\n")
    (tmp_path / "q.yaml").write_text(
        "base_model: Qwen/Qwen2.5-7B\ndatasets: [{path: a/b, type: alpaca}]\nsequence_len: 4096\n"
        "micro_batch_size: 2\ngradient_accumulation_steps: 4\nlearning_rate: 2e-5\nbf16: true\n"
        "adapter: qlora\nload_in_4bit: true\nlora_r: 8\ngradient_checkpointing: true\n"
        "fsdp_version: 2\nfsdp_config: {reshard_after_forward: true}\n"
    )
    spec = drafted([tmp_path], {"cluster": "dgx-a100"}).spec
    training, layout = spec["training"], spec["layout"]
    assert (spec["model"], spec["gpus"], training["sharding"]) == ("qwen2.5-7b", 8, "fsdp2")
    assert training["lora"] == {"rank": 8, "base": "4bit"}
    assert (training["sequence_length"], training["global_batch"]) == (4096, 64)
    assert (layout["zero_stage"], layout["micro_batch"], layout["recompute"]) == (3, 2, "full")


@pytest.mark.parametrize(
    "line",
    [
        "python3 -m verl.trainer.main_ppo actor_rollout_ref.actor.strategy=megatron",
        "./train.py --actor-num-nodes 2 --colocate",
    ],
)
def test_front_ends_that_say_little_are_adopted(line: str, tmp_path: Path) -> None:
    """A launch of a front end gets a spec where it says nothing of precision, or starts itself."""
    (tmp_path / "run.sh").write_text(f"#!/bin/bash\n{line}\n")
    spec = tmp_path / "dsgen.yaml"
    made = run("init", "--from", str(tmp_path), *FLAGS, "-o", str(spec))
    assert made.exit_code in (0, 1), made.output  # 1: what stops the front end, if anything does
    assert spec.exists()


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("python3 -m verl.trainer.main_ppo trainer.nnodes=2", "FSDP, with which verl trains"),
        ("python3 -m verl.trainer.main_ppo --config-name=mine", "megatron or FSDP"),
        ("torchrun -m verl.trainer.fsdp_sft_trainer data.x=1", "megatron or FSDP"),
        ("tune run --nproc_per_node 8 full_finetune_distributed", "FSDP, with which torchtune"),
    ],
)
def test_a_front_end_that_starts_another_engine_is_refused(
    line: str, reason: str, tmp_path: Path
) -> None:
    """A launch of a front end that trains with FSDP of its own is refused by name."""
    (tmp_path / "run.sh").write_text(f"#!/bin/bash\n{line}\n")
    spec = tmp_path / "dsgen.yaml"
    made = run("init", "--from", str(tmp_path), *FLAGS, "-o", str(spec))
    assert made.exit_code == 1
    assert reason in " ".join(made.output.split())
    assert "hint: plan the training by itself: dsgen init --model llama-2-7b" in made.output
    assert "Usage" not in made.output
    assert not spec.exists()


@pytest.mark.parametrize(
    ("line", "words", "key"),
    [
        ("swift sft --model Qwen/Qwen2.5-7B --dataset d.jsonl", ["sft"], "deepspeed"),
        ("llamafactory-cli train q.yaml", ["train", "q.yaml"], "deepspeed"),
        ("axolotl train q.yaml --num-processes 8", ["train", "q.yaml"], "micro_batch_size"),
        (
            "ray job submit -- python3 train.py --actor-num-nodes 1 --rollout-num-gpus 8",
            ["--actor-num-nodes", "1"],
            "tensor-model-parallel-size",
        ),
    ],
)
def test_the_launch_of_a_front_end_is_not_written(
    line: str, words: list[str], key: str, tmp_path: Path
) -> None:
    """A spec from a front end's launch keeps its words; `init`, the spec and `Next` of `dsgen` say
    that its launch isn't written, and `settings.txt` has the keys that the plan decides.
    """
    (tmp_path / "run.sh").write_text(f"#!/bin/bash\n{line}\n")
    (tmp_path / "q.yaml").write_text(
        "base_model: Qwen/Qwen2.5-7B\nmodel_name_or_path: Qwen/Qwen2.5-7B\n"
        "learning_rate: 2e-5\nbf16: true\noutput_dir: out\n"
    )
    spec = tmp_path / "dsgen.yaml"
    flags = ("--model", "llama-2-7b", "--cluster", "dgx-h100", "--gpus", "8")
    made = run("init", "--from", str(tmp_path / "run.sh"), *flags, "-o", str(spec))
    assert made.exit_code == 0, made.output
    written = yaml.safe_load(spec.read_text())["launch"]["arguments"]
    assert [str(word) for word in written[: len(words)]] == words
    assert not any("model_name_or_path" in str(word) for word in written)

    out = tmp_path / "out"
    planned = run("generate", str(spec), "-o", str(out))
    for output in (made.output, spec.read_text(), planned.output):
        assert "dsgen does not write the launch of" in " ".join(output.split())
    settings = (out / "settings.txt").read_text()
    assert key in settings.partition("does not write")[2]
    assert "Start the job" not in planned.output
    config = {"ds_config.json"} if key != "tensor-model-parallel-size" else set()
    assert {file.name for file in out.iterdir()} == {"plan.json", "settings.txt"} | config


@pytest.mark.parametrize(
    ("line", "script"),
    [
        ("accelerate launch -m trl.scripts.sft", "trl.scripts.sft"),
        ("torchrun -m --nproc-per-node 8 trl.scripts.sft", "trl.scripts.sft"),
        ("deepspeed --module train", "train.py"),
        ("torchrun -m trainer", "trainer.__main__"),
    ],
)
def test_a_module_is_a_script_that_is_started_as_one(
    line: str, script: str, tmp_path: Path
) -> None:
    """A module's name is the spec's script; of one word, its file or what its package starts."""
    (tmp_path / "train.py").touch()
    (tmp_path / "run.sh").write_text(f"#!/bin/bash\n{line} --output_dir o --bf16 true\n")
    draft = draft_run(find_runs([tmp_path / "run.sh"])[1][0])
    assert draft.spec["launch"]["script"] == script


def test_what_needs_a_launch_file_refuses_the_job_of_a_front_end(tmp_path: Path) -> None:
    """A range of GPUs, `submit` and `tune` name the front end whose launch isn't written."""
    spec = tmp_path / "dsgen.yaml"
    spec.write_text(
        "framework: deepspeed\nmodel: llama-3-8b\ncluster: dgx-h100\ngpus: 8\n"
        "training: {global_batch: 64}\n"
        "launch: {target: slurm, script: openrlhf.cli.train_sft, arguments: [--bf16]}\n"
    )
    out = ("-o", str(tmp_path / "out"))
    for command in (
        ("generate", str(spec), "--set", "gpus=8,16", *out),
        ("submit", str(spec), "--yes", *out),
        ("tune", str(spec), "--yes", *out),
    ):
        made = run(*command)
        assert made.exit_code == 1, made.output
        assert "front end" in made.output or "the launch of OpenRLHF" in made.output


def test_an_unknown_word_of_verl_is_the_only_one_that_is_lost(tmp_path: Path) -> None:
    """A key whose value only the shell knows is named, and every other key is carried over."""
    (tmp_path / "run.sh").write_text(
        "#!/bin/bash\npython3 -m verl.trainer.main_ppo --config-name=ppo_megatron_trainer.yaml "
        "data.train_files=$HOME/train.parquet trainer.nnodes=2 "
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=1 $@\n"
    )
    spec = tmp_path / "dsgen.yaml"
    flags = ("--model", "llama-2-7b", "--cluster", "dgx-h100", "-o", str(spec))
    made = run("init", "--from", str(tmp_path / "run.sh"), *flags)
    assert made.exit_code == 0, made.output
    assert "data.train_files=$HOME/train.parquet: its value is not in the files" in made.output
    assert "error" not in made.output
    assert "\n      trainer.nnodes=2,\n" in spec.read_text()
    assert yaml.safe_load(spec.read_text())["launch"]["arguments"] == [
        "--config-name=ppo_megatron_trainer.yaml",
        "trainer.nnodes=2",
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=1",
    ]


@pytest.mark.parametrize(
    ("words", "layout"),
    [
        ("megatron.tensor_model_parallel_size=2", {"sequence_parallel": True, "zero_stage": 1}),
        (
            "megatron.tensor_model_parallel_size=2 actor_rollout_ref.actor.megatron"
            ".sequence_parallel=False",
            {"sequence_parallel": False},
        ),
        ("megatron.tensor_model_parallel_size=1", {"tensor": 1, "recompute": "none"}),
        ("megatron.use_distributed_optimizer=False", {"zero_stage": 0}),
        (
            "megatron.override_transformer_config.recompute_granularity=full actor_rollout_ref"
            ".actor.megatron.override_transformer_config.recompute_method=uniform "
            "+actor_rollout_ref.actor.megatron.override_transformer_config.recompute_num_layers=2",
            {"recompute": "full", "recompute_group": 2},
        ),
        (
            "optim.override_optimizer_config.optimizer_cpu_offload=True",
            {"offload": "optimizer"},
        ),
        ("optim.lr=2e-6", {}),
    ],
)
def test_layout_of_verl_is_that_of_its_keys_and_defaults(
    words: str, layout: dict[str, Any], tmp_path: Path
) -> None:
    """Sequence parallelism, which verl has by default, its distributed optimizer, recomputation
    and offload are in the spec's layout as its keys have them.
    """
    (tmp_path / "run.sh").write_text(
        "#!/bin/bash\npython3 -m verl.trainer.main_ppo actor_rollout_ref.actor.strategy=megatron "
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=1 "
        f"actor_rollout_ref.actor.{words}\n"
    )
    draft = draft_run(find_runs([tmp_path])[1][0], (), {"model": "llama-2-7b", "gpus": 8})
    carry_over(draft)
    assert draft.spec["layout"].items() >= layout.items()
    assert "sequence_parallel" not in draft.spec["layout"] or "tensor" not in layout
    rate = draft.spec["training"].get("learning_rate")
    assert rate == (2e-6 if "lr=" in words else None)


@pytest.mark.parametrize(
    ("profile", "expected"),
    [
        (
            "zero3 --num_processes 4",
            {"gpus": 4, "layout.zero_stage": 3, "framework": "huggingface"},
        ),
        ("zero2", {"gpus": 8, "layout.zero_stage": 2, "training.precision": "bf16"}),
        ("fsdp2", {"gpus": 8, "training.sharding": "fsdp2", "layout.zero_stage": 3}),
        ("mine.yaml", {"gpus": 2, "layout.zero_stage": 1}),
    ],
)
def test_options_of_accelerate_are_read_on_trls_own_command(
    profile: str, expected: dict[str, object], tmp_path: Path
) -> None:
    """`trl sft` hands `--accelerate_config`, a file or the name of one of TRL's, and
    `--num_processes` to accelerate; its classes checkpoint activations by default.
    """
    (tmp_path / "mine.yaml").write_text(
        "compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\nnum_processes: 2\n"
        "num_machines: 1\ndeepspeed_config: {zero_stage: 1}\n"
    )
    (tmp_path / "run.sh").write_text(
        "#!/bin/bash\ntrl sft --model_name_or_path Qwen/Qwen2.5-7B --output_dir o "
        f"--accelerate_config {profile} --per_device_train_batch_size 2\n"
    )
    draft = draft_run(find_runs([tmp_path / "run.sh"])[1][0])
    assert draft.refused is None
    assert {key: draft.get(key) for key in expected} == expected
    assert draft.get("layout.recompute") == "full"


@pytest.mark.parametrize("cluster", ["dgx-h100", "8xh100-80gb-sxm"])
@pytest.mark.parametrize("start", ["accelerate launch -m trl.scripts.grpo", "torchrun train.py"])
def test_what_generates_beside_a_training_of_trl_is_said(
    start: str, cluster: str, tmp_path: Path
) -> None:
    """Generation, the share of the card that a colocated vLLM keeps, and the reference model of a
    GRPO are named, however its launch is started.
    """
    (tmp_path / "run.sh").write_text(
        f"#!/bin/bash\n{start} --output_dir o --bf16 true --per_device_train_batch_size 2 "
        "--num_generations 8 --use_vllm true --vllm_mode colocate --beta 0.04 "
        "--vllm_gpu_memory_utilization 0.25\n"
    )
    draft = draft_run(find_runs([tmp_path])[1][0], (), {"cluster": cluster})
    said = " ".join(map(str, draft.left))
    assert draft.get("memory.reserved_gib") == 19.9
    assert "generation isn't planned" in said
    assert "--beta 0.04: not planned: a reference model" in said


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (
            "--zero_stage 3 --gradient_checkpointing --actor_learning_rate 5e-7 "
            "--prompt_max_len 1024 --generate_max_len 2048 --micro_train_batch_size 4",
            {
                "layout.zero_stage": 3,
                "layout.recompute": "full",
                "training.learning_rate": 5e-7,
                "training.sequence_length": 3072,
                "layout.tensor": 1,
            },
        ),
        (
            "--ds.zero_stage 1 --ds.tensor_parallel_size 2 --actor.num_nodes 1",
            {
                "layout.zero_stage": 1,
                "layout.recompute": "none",
                "training.sequence_length": 2048,
                "layout.tensor": 2,
            },
        ),
        (
            "--actor.num_nodes 1 --ds.adam_offload",
            {"layout.zero_stage": 2, "layout.offload": "optimizer"},
        ),
        (
            "--colocate_all_models --vllm_num_engines 4 --vllm_gpu_memory_utilization 0.5",
            {"memory.reserved_gib": 39.8},
        ),
        (
            "--colocate_all_models --vllm_num_engines 4 --vllm_enable_sleep",
            {"memory.reserved_gib": None},
        ),
    ],
)
def test_settings_of_openrlhf_are_those_of_the_spec(
    words: str, expected: dict[str, object], tmp_path: Path
) -> None:
    """Stage, recomputation, offload, length and learning rate of OpenRLHF's training, by default
    too, are keys of the spec in both of its spellings.
    """
    (tmp_path / "run.sh").write_text(
        f"#!/bin/bash\npython3 -m openrlhf.cli.train_ppo_ray {words}\n"
    )
    draft = draft_run(find_runs([tmp_path])[1][0], (), {"cluster": "dgx-h100"})
    assert {key: draft.get(key) for key in expected} == expected


@pytest.mark.parametrize(
    ("release", "words", "length", "bounds"),
    [
        ("0.24.0", "", 768, True),
        ("0.24.0", "--max_completion_length 1024", 1536, True),
        ("1.9.2", "", 256, False),
        ("1.10.0", "", 512, False),
        ("1.10.0", "--max_completion_length 1024", 1024, False),
        ("1.10.0", "--max_prompt_length 256 --max_completion_length 1024", 1280, True),
    ],
)
def test_lengths_of_trl_are_those_of_its_release(
    release: str, words: str, length: int, bounds: bool, tmp_path: Path
) -> None:
    """A sequence of GRPO is a prompt and a completion, whose defaults are those of the release;
    where no option bounds the prompts, that is said.
    """
    (tmp_path / "requirements.txt").write_text(f"trl=={release}\n")
    (tmp_path / "run.sh").write_text(
        f"#!/bin/bash\ntrl grpo --output_dir o --per_device_train_batch_size 2 {words}\n"
    )
    draft = draft_run(find_runs([tmp_path / "run.sh"])[1][0])
    assert draft.get("training.sequence_length") == length
    said = " ".join(map(str, draft.left))
    assert ("no option bounds the prompts" not in said) == bounds


@pytest.mark.parametrize(
    "start", ["trl grpo", "accelerate launch -m trl.scripts.grpo", "accelerate launch grpo.py"]
)
def test_a_recipe_of_trl_has_what_its_launch_leaves_out(start: str, tmp_path: Path) -> None:
    """The share of the card, the lengths and the reference model of a GRPO are read from the file
    that its launch names; what the launch writes itself counts before that.
    """
    (tmp_path / "recipe.yaml").write_text(
        "output_dir: o\nper_device_train_batch_size: 2\nnum_generations: 8\nuse_vllm: true\n"
        "vllm_mode: colocate\nvllm_gpu_memory_utilization: 0.5\nbeta: 0.04\n"
        "max_prompt_length: 512\nmax_completion_length: 1024\nsave_strategy: steps\n"
    )
    (tmp_path / "run.sh").write_text(
        f"#!/bin/bash\n{start} --config recipe.yaml --vllm_gpu_memory_utilization 0.25\n"
    )
    draft = draft_run(find_runs([tmp_path])[1][0], (), {"cluster": "dgx-h100"})
    assert draft.get("memory.reserved_gib") == 19.9
    assert draft.get("training.sequence_length") == 1536
    assert "beta: 0.04: not planned: a reference model" in " ".join(map(str, draft.left))


def test_batch_and_length_of_verl_are_those_of_its_updates(tmp_path: Path) -> None:
    """An optimizer step of verl has each generated sample of a mini-batch, prompt and answer."""
    (tmp_path / "run.sh").write_text(
        "#!/bin/bash\npython3 -m verl.trainer.main_ppo actor_rollout_ref.actor.strategy=megatron "
        "actor_rollout_ref.actor.ppo_mini_batch_size=256 actor_rollout_ref.rollout.n=8 "
        "data.max_prompt_length=1024 data.max_response_length=4096\n"
    )
    training = draft_run(find_runs([tmp_path])[1][0]).spec["training"]
    assert (training["global_batch"], training["sequence_length"]) == (2048, 5120)


_FSDP = """distributed_type: FSDP
compute_environment: LOCAL_MACHINE
num_machines: 1
num_processes: 8
fsdp_config:
  fsdp_version: {version}
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  {more}
"""
_TRAINER = (
    "accelerate launch --config_file fsdp.yaml run_clm.py --output_dir out "
    "--per_device_train_batch_size 2 --learning_rate 1e-5\n"
)


@pytest.mark.parametrize(
    ("line", "version", "more", "reason"),
    [
        (
            "accelerate launch --config_file fsdp.yaml train.py --lr 1e-4\n",
            2,
            "fsdp_state_dict_type: SHARDED_STATE_DICT",
            "FSDP of train.py",
        ),
        (_TRAINER, 1, "fsdp_sharding_strategy: NO_SHARD", "FSDP's NO_SHARD"),
        (
            _TRAINER,
            2,
            "fsdp_offload_params: false\nparallelism_config:\n  parallelism_config_tp_size: 2",
            "tp_size 2",
        ),
        (
            _TRAINER.replace("run_clm.py", "run_clm_no_trainer.py"),
            2,
            "fsdp_offload_params: false",
            "FSDP of run_clm_no_trainer.py",
        ),
    ],
)
def test_fsdp_that_no_spec_says_is_refused(
    line: str, version: int, more: str, reason: str, tmp_path: Path
) -> None:
    """An FSDP launch that no spec can say is refused by what it is, and no spec is written."""
    (tmp_path / "fsdp.yaml").write_text(_FSDP.format(version=version, more=more))
    (tmp_path / "train.sh").write_text(line)
    spec = tmp_path / "dsgen.yaml"
    made = run("init", "--from", str(tmp_path), *FLAGS, "-o", str(spec))
    assert made.exit_code == 1
    assert reason in made.output
    assert not spec.exists()


def test_a_config_of_accelerate_that_was_not_given_is_asked_for(tmp_path: Path) -> None:
    """A script alone isn't adopted where accelerate's config, which says how the states are
    sharded, is not among the files; where the launch line says it, the config is only named.
    """
    script = tmp_path / "train.sh"
    answers = {"model": "llama-2-7b", "cluster": "dgx-a100", "gpus": 8}
    line = "accelerate launch --config_file fsdp.yaml{} train.py --learning_rate 1e-5"
    batch = "--per_device_train_batch_size 2"

    script.write_text(f"#!/bin/bash\n{line.format('')} {batch}\n")
    refused = drafted([script], answers).refused
    assert refused is not None
    assert (refused.what, refused.where.line) == ("--config_file fsdp.yaml", 2)
    assert "isn't among the files" in refused.why

    script.write_text(f"#!/bin/bash\n{line.format(' --use_deepspeed')} {batch}\n")
    made = drafted([script], answers)
    assert made.refused is None
    assert [left.what for left in made.left] == ["--config_file fsdp.yaml"]
    assert made.get("training.learning_rate") == 1e-5


def test_a_deepspeed_config_that_was_not_given_is_named(tmp_path: Path) -> None:
    """Of a config that says the stage and isn't there, the spec says that its stage isn't known."""
    script = tmp_path / "train.sh"
    script.write_text(
        "#!/bin/bash\ntorchrun --nproc_per_node 8 train.py --deepspeed ds_z3.json "
        "--learning_rate 1e-5 --per_device_train_batch_size 2\n"
    )
    answers = {"model": "llama-2-7b", "cluster": "dgx-a100", "gpus": 8}
    made = drafted([script], answers)
    (left,) = (left for left in made.left if left.what == "ds_z3.json")
    assert left.where.line == 2
    assert "layout.zero_stage" in left.why

    (tmp_path / "ds_z3.json").write_text('{"zero_optimization": {"stage": 3}}')
    made = drafted([tmp_path], answers)
    assert made.get("layout.zero_stage") == 3
    assert "ds_z3.json" not in [left.what for left in made.left]


def test_variables_have_the_counts_of_sbatchs_options(tmp_path: Path) -> None:
    """What Slurm sets by the script's own options is in the files; memory is in another unit."""
    script = tmp_path / "train.sbatch"
    script.write_text(
        "#!/bin/bash\n#SBATCH --nodes=4\n#SBATCH --ntasks-per-node=1\n#SBATCH --gpus-per-node=8\n"
        "#SBATCH --cpus-per-task=96\n#SBATCH --mem=500G\n"
        "export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK\n"
        'export DATA_WORKERS="${SLURM_CPUS_PER_TASK}"\nexport MEMORY=$SLURM_MEM_PER_NODE\n'
        "srun torchrun --nnodes=4 --nproc-per-node=8 --rdzv-backend=c10d --rdzv-endpoint=h:29500"
        " train.py --learning_rate 1e-5 --per_device_train_batch_size 2 --bf16 true\n"
    )
    answers = {"model": "llama-2-7b", "cluster": "dgx-a100", "gpus": 32}
    made = drafted([script], answers)
    assert made.get("launch.environment") == {"DATA_WORKERS": "96"}
    left = [one.what for one in made.left]
    assert "MEMORY=$SLURM_MEM_PER_NODE" in left
    assert not any("CPUS" in what for what in left)


def test_a_variable_that_is_the_launch_line_is_not_carried_over(tmp_path: Path) -> None:
    """What a script exports for its own launch line isn't the program's environment."""
    script = tmp_path / "train.sh"
    script.write_text(
        "#!/bin/bash\nexport OMP_NUM_THREADS=4\n"
        'export LAUNCHER="torchrun --nproc_per_node 8"\n'
        'export CMD="train.py --learning_rate 1e-5 --per_device_train_batch_size 2 --bf16"\n'
        "$LAUNCHER $CMD\n"
    )
    answers = {"model": "llama-2-7b", "cluster": "dgx-a100", "gpus": 8}
    made = drafted([script], answers)
    assert made.get("launch.environment") == {"OMP_NUM_THREADS": "4"}
    assert made.get("training.learning_rate") == 1e-5


def test_recomputation_that_the_plan_has_as_a_setting_of_fsdp_is_not_left_out(
    tmp_path: Path,
) -> None:
    """`--gradient_checkpointing` under FSDP2 is recomputation in the spec, and not lost."""
    (tmp_path / "fsdp.yaml").write_text(
        _FSDP.format(version=2, more="fsdp_state_dict_type: SHARDED_STATE_DICT")
    )
    (tmp_path / "train.sh").write_text(_TRAINER.rstrip() + " --gradient_checkpointing\n")
    made = drafted([tmp_path], {"model": "llama-2-7b", "cluster": "dgx-a100", "gpus": 8})
    assert made.get("layout.recompute") == "full"

    carry_over(made)
    assert not [left.what for left in made.left if "gradient_checkpointing" in left.what]


def test_one_line_of_a_called_script_is_one_run(tmp_path: Path) -> None:
    """A launch line that a submitted script calls is the run of that script, whatever order a
    folder has its files in, and no other run.
    """
    (tmp_path / "launch.sh").write_text(
        "deepspeed --num_gpus 8 train.py --deepspeed_config ds.json\n"
    )
    (tmp_path / "submit.sbatch").write_text(
        "#!/bin/bash\n#SBATCH --nodes=1\n#SBATCH --partition=gpu\nsrun bash launch.sh\n"
    )
    (tmp_path / "ds.json").write_text('{"train_batch_size": 8, "zero_optimization": {"stage": 2}}')
    made = drafted([tmp_path], {"model": "llama-2-7b", "cluster": "dgx-a100"})
    assert made.spec["launch"]["slurm"]["partition"] == "gpu"
    assert not any("run" in note.why for note in made.left)


@pytest.mark.parametrize(("option", "is_said"), [("", True), ("--bf16 ", False)])
def test_fp8_alone_leaves_the_rest_in_fp32(tmp_path: Path, option: str, is_said: bool) -> None:
    """Without --bf16 Megatron-LM keeps parameters and activations in fp32 beside products in fp8:
    the spec, which means 16 bits, says so.
    """
    sizes = "--num-layers 2 --hidden-size 512 --num-attention-heads 8 --seq-length 1024"
    line = f"torchrun --nproc-per-node 8 pretrain_gpt.py {sizes} {option}--fp8-format hybrid\n"
    (tmp_path / "run.sh").write_text(f"#!/bin/bash\n{line}", encoding="utf-8")
    made = drafted([tmp_path], {"cluster": "nvidia/dgx-h100"})
    assert ("training.precision" in made.comments) is is_said


def test_a_server_of_a_training_has_no_part_in_its_spec(tmp_path: Path) -> None:
    """The GPUs are those of the training's own step, and what runs beside it is named; the learning
    rate is the default of the class that the program parses.
    """
    start = yaml.safe_load((FOLDER.parents[1] / "cases/HF046_served.yaml").read_text())["start"]
    for name, text in start.items():
        (tmp_path / name).write_text(text)
    made = drafted([tmp_path], {"model": "qwen2.5-7b", "cluster": "nvidia/dgx-h100"})
    carry_over(made)
    assert made.get("gpus") == 32
    assert made.get("training.learning_rate") == 1e-6
    assert "--learning_rate" not in made.get("launch.arguments")
    assert any(one.what.startswith("trl vllm-serve") for one in made.left)


def test_a_config_that_is_missing_is_not_taken_for_none(tmp_path: Path) -> None:
    """Of a launch whose DeepSpeed config is missing it isn't said that it shards nothing."""
    (tmp_path / "run.sh").write_text("torchrun train.py sft.yaml\n")
    (tmp_path / "sft.yaml").write_text(
        "deepspeed: ds_z3.json\noutput_dir: out\nper_device_train_batch_size: 1\n"
        "learning_rate: 1.0e-5\nbf16: true\nnum_train_epochs: 1\n"
    )
    flags = ("--model", "llama-2-7b", "--cluster", "dgx-h100", "--gpus", "8")
    made = run("init", "--from", str(tmp_path), *flags, "-o", str(tmp_path / "dsgen.yaml"))
    assert "the DeepSpeed config that the arguments name isn't among the files" in made.output
    assert "shards nothing" not in made.output
