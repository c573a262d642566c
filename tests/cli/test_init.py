"""`dsgen init`: answers as flags, proposals of a folder, and specs that load and plan."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

import dsgen
from dsgen.cli.proposals import cards_of, partitions_of
from tests.cli.running import run

MODEL = {
    "model_type": "llama",
    "hidden_size": 256,
    "intermediate_size": 688,
    "num_hidden_layers": 4,
}
MODEL |= {"num_attention_heads": 4, "vocab_size": 1000, "max_position_embeddings": 4096}
ANSWERS = (
    "--model",
    "llama-3-8b",
    "--gpus",
    "16",
    "--cluster",
    "dgx-h100",
    "--framework",
    "deepspeed",
)


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No program of this machine proposes anything."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))


def test_flags_are_answers() -> None:
    """With every answer as a flag a spec is written that loads and plans, below the editor's schema
    line.
    """
    made = run("init", *ANSWERS, "--target", "slurm")
    assert made.exit_code == 0, made.output
    first = Path("dsgen.yaml").read_text().splitlines()[0]
    assert first.startswith("# yaml-language-server: $schema=")
    assert Path(first.partition("=")[2]).is_file()
    assert isinstance(dsgen.search(dsgen.load_job("dsgen.yaml"), top=1), dsgen.SearchResult)
    assert "dsgen plan" in made.output


def test_all_missing_answers_are_named() -> None:
    """Without a terminal, one usage error names every answer that is missing, with its flag."""
    made = run("init", "--gpus", "8")
    assert made.exit_code == 2
    assert all(flag in made.output for flag in ("--model", "--cluster", "--framework", "--target"))
    assert "--gpus " not in made.output.split("give")[1]
    assert not Path("dsgen.yaml").exists()


def test_nothing_is_overwritten() -> None:
    """A spec that exists stays as it is without --force."""
    Path("dsgen.yaml").write_text("mine\n")
    made = run("init", *ANSWERS, "--target", "slurm")
    assert made.exit_code == 4
    assert Path("dsgen.yaml").read_text() == "mine\n"
    assert run("init", *ANSWERS, "--target", "slurm", "--force").exit_code == 0
    assert "llama-3-8b" in Path("dsgen.yaml").read_text()


def test_slips_are_corrected() -> None:
    """A name that is unknown is answered with the nearest one."""
    made = run("init", "--model", "lama-3-8b", *ANSWERS[2:], "--target", "slurm")
    assert made.exit_code == 2
    assert "did you mean 'llama-3-8b'" in made.output


def test_a_folder_answers() -> None:
    """Without a terminal, what the folder says is taken and told with its file; the error has only
    what nobody says.
    """
    Path("config.json").write_text(json.dumps(MODEL))
    Path("ds.json").write_text(
        json.dumps({"zero_optimization": {"stage": 2}, "bf16": {"enabled": True}})
    )
    made = run("init", "--gpus", "8")
    assert made.exit_code == 2
    assert "from config.json: --model config.json\n" in made.stderr
    assert "from ds.json: --framework deepspeed\n" in made.stderr
    lacking = made.stderr.split("give\n")[1]
    assert "--cluster" in lacking and "--target" in lacking
    assert "--model" not in lacking and "--framework" not in lacking
    assert run("init", "--nodes", "1", "--cluster", "dgx-h100", "--target", "slurm").exit_code == 0
    job = dsgen.load_job("dsgen.yaml")
    assert (job.framework.name, job.model.hidden) == ("deepspeed", 256)


def test_a_node_is_counted_in_gpus() -> None:
    """4xa100-40gb is an inline cluster of nodes of 4, in and without --from; its rate is --set's,
    or a named guess.
    """
    words = (
        "--model",
        "llama-3-8b",
        "--cluster",
        "4xa100-40gb",
        "--nodes",
        "4",
        "--framework",
        "deepspeed",
    )
    made = run("init", *words, "--target", "slurm")
    assert made.exit_code == 0, made.output
    assert (
        "an assumption, to be corrected: cluster.network_gbits_per_s_per_node: 200" in made.stderr
    )
    cluster = dsgen.load_job("dsgen.yaml").cluster
    assert (cluster.accelerator.name, cluster.accelerators_per_node) == ("a100-40gb-sxm", 4)
    rate = ("--set", "cluster.network_gbits_per_s_per_node=400")
    made = run("init", *words, "--target", "slurm", *rate, "--force")
    assert "guess" not in made.stderr + Path("dsgen.yaml").read_text()
    assert "network_gbits_per_s_per_node: 400" in Path("dsgen.yaml").read_text()
    Path("ds.json").write_text(
        json.dumps({"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 3}})
    )
    assert run("init", "--from", "ds.json", *words, *rate, "--force").exit_code == 0
    assert "network_gbits_per_s_per_node: 400" in Path("dsgen.yaml").read_text()
    made = run("init", "--cluster", "a100-40gb", "--force")
    assert made.exit_code == 2
    assert (
        "give --cluster 4xa100-40gb for nodes of 4, or a node type: azure/standard_nd96asr_v4"
        in made.stderr
    )


def test_missing_machines_are_asked_for_with_what_the_files_say() -> None:
    """Without --cluster, the error of `init --from` names the GPUs of a node and where they are."""
    script = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --partition=h100\n#SBATCH --gpus-per-node=8\n"
    Path("sft.sbatch").write_text(f"{script}srun torchrun --nproc-per-node 8 train.py\n")
    made = run("init", "--from", "sft.sbatch", "--model", "llama-3-8b")
    assert made.exit_code == 2
    assert "8 GPUs a node (sft.sbatch:4): such as 8xh100-80gb-sxm or nvidia/dgx-h100" in made.stderr


def test_machines_that_files_leave_out_are_answered() -> None:
    """The GPUs of one machine complete a launch that says none; no other key comes with them."""
    Path("run.sh").write_text(
        "#!/bin/bash\nswift sft --model Qwen/Qwen2.5-7B-Instruct --deepspeed zero2 "
        "--per_device_train_batch_size 1 --gradient_accumulation_steps 2 --max_length 2048 "
        "--output_dir o --lora_alpha 64\n"
    )
    made = run("init", "--from", "run.sh", "--cluster", "8xh100")
    assert made.exit_code == 0, made.output
    job = dsgen.load_job("dsgen.yaml")
    assert job.gpus == 8 and job.training.lora is not None and job.training.lora.alpha == 64


def test_nodes_are_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a terminal, `8 nodes` answers how many GPUs, and words that are no number are asked about
    again.
    """
    monkeypatch.setattr("dsgen.cli.questions.is_asked", lambda: True)
    typed = iter(("many", "8 nodes", "sometime", "300B"))
    monkeypatch.setattr("dsgen.cli.questions.click.prompt", lambda *_, **__: next(typed))
    made = run("init", "--model", "llama-3-8b", *ANSWERS[4:], "--target", "slurm")
    assert "'many' is not a number of GPUs" in made.stderr
    assert "'sometime' is no length" in made.stderr
    job = dsgen.load_job("dsgen.yaml")
    assert (job.gpus, job.training.duration_tokens) == (64, 300 * 10**9)


def test_a_purpose_brings_its_framework_and_batch() -> None:
    """LoRA on one node of counted cards: adapters, the Trainer, a batch that every GPU has part of,
    no network.
    """
    words = ("--model", "Qwen/Qwen2.5-7B-Instruct", "--cluster", "4xa10g", "--target", "shell")
    made = run("init", *words, "--purpose", "lora")
    assert made.exit_code == 0, made.output
    assert "network" not in made.output + Path("dsgen.yaml").read_text()
    job = dsgen.load_job("dsgen.yaml")
    assert (job.framework.name, job.training.global_batch, job.cluster.accelerators_per_node) == (
        "huggingface",
        16,
        4,
    )
    assert job.training.lora is not None
    assert run("init", *words, "--purpose", "fine-tuning", "--force").exit_code == 0
    job = dsgen.load_job("dsgen.yaml")
    assert (job.training.global_batch, job.training.lora) == (128, None)


def test_files_fill_what_is_not_asked() -> None:
    """Partition, account and time limit of a script here are in the spec, each with where it is
    from.
    """
    Path("old.sbatch").write_text(
        "#!/bin/bash\n#SBATCH -p gpu -A nlp\n#SBATCH --time=1-00:00:00\nsrun torchrun "
        "--nproc-per-node 8 train.py\n"
    )
    assert run("init", *ANSWERS, "--target", "slurm").exit_code == 0
    job = dsgen.load_job("dsgen.yaml")
    assert job.launch.options == {"partition": "gpu", "account": "nlp"}
    assert job.launch.time_limit_s == 86_400
    assert "# from old.sbatch" in Path("dsgen.yaml").read_text()


def test_a_launch_that_lacks_answers_names_them() -> None:
    """A DeepSpeed config alone needs a model and machines, and the error says both flags."""
    Path("ds.json").write_text(
        json.dumps({"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 3}})
    )
    made = run("init", "--from", "ds.json")
    assert made.exit_code == 2
    assert "--model" in made.output
    assert "--cluster" in made.output
    assert "--gpus" in made.output


def test_nothing_to_read_is_an_error() -> None:
    """A folder without a launch is a usage error, and no spec is written."""
    Path("notes.txt").write_text("nothing")
    made = run("init", "--from", ".")
    assert made.exit_code == 2
    assert not Path("dsgen.yaml").exists()


def test_files_that_cannot_be_read_are_named() -> None:
    """A script that is no text is said to be none, with the rule, before nothing is found."""
    Path("train.sh").write_bytes(b"deepspeed train.py \xff\n")
    made = run("init", "--from", ".")
    assert made.exit_code == 2
    assert "train.sh: note: byte 0xff at offset 19 is not UTF-8 text [FILE001]" in made.output


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("NVIDIA A100-SXM4-80GB, 81920", "a100-80gb-sxm"),
        ("NVIDIA A100-SXM4-40GB, 40960", "a100-40gb-sxm"),
        ("NVIDIA A100 80GB PCIe, 81920", "a100-80gb-pcie"),
        ("NVIDIA H100 80GB HBM3, 81559", "h100-80gb-sxm"),
        ("NVIDIA H100 PCIe, 81559", "h100-80gb-pcie"),
        ("Tesla V100-SXM2-32GB, 32510", "v100-32gb-sxm"),
    ],
)
def test_cards_have_names_in_the_catalog(line: str, name: str) -> None:
    """What nvidia-smi prints of 8 like cards is the accelerator of the catalog and their number."""
    assert cards_of(f"{line}\n" * 8) == (name, 8)


def test_unknown_cards_propose_nothing() -> None:
    """A card that the catalog lacks, or two kinds, propose nothing."""
    assert cards_of("Some Card 9000, 1234\n") is None
    assert cards_of("NVIDIA A100-SXM4-80GB, 81920\nTesla V100-SXM2-32GB, 32510\n") is None


def test_partitions_with_gpus_are_read() -> None:
    """Of what sinfo prints, partitions whose nodes have GPUs count, and the default one is
    known.
    """
    found = list(partitions_of("cpu|10|(null)\ngpu*|16|gpu:a100:8(S:0-1)\nbig|4|gpu:8\n"))
    assert [(one.name, one.nodes, one.kind, one.gpus, one.is_default) for one in found] == [
        ("gpu", 16, "a100", 8, True),
        ("big", 4, None, 8, False),
    ]


def test_a_spec_without_a_plan_is_written_and_said_to_be() -> None:
    """Answers that no layout fits give the spec, why nothing fits, and the status of an infeasible
    job.
    """
    answers = ("--model", "llama-3.1-405b", "--gpus", "8", *ANSWERS[4:])
    made = run("init", *answers, "--target", "slurm")
    assert made.exit_code == 3
    assert "none of" in made.output
    assert Path("dsgen.yaml").exists()


def test_a_schema_below_the_spec_is_named_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A spec beside the environment that has dsgen names the schema by its path from there, which
    others have too.
    """
    schemas = tmp_path / ".venv" / "schemas"
    monkeypatch.setattr("importlib.resources.files", lambda _: schemas)
    run("init", *ANSWERS, "--target", "slurm")
    first = Path("dsgen.yaml").read_text().splitlines()[0]
    assert first == "# yaml-language-server: $schema=./.venv/schemas/job.schema.json"


def test_editors_get_the_schema_beside_the_spec() -> None:
    """A schema that lies beside the spec is the one that it names, by its name alone."""
    Path("dsgen.schema.json").write_text("{}")
    run("init", *ANSWERS, "--target", "slurm")
    assert (
        Path("dsgen.yaml")
        .read_text()
        .startswith("# yaml-language-server: $schema=dsgen.schema.json\n")
    )


def test_specs_elsewhere_find_their_model() -> None:
    """A model's path is written from the spec's folder, where the spec's reader looks for it."""
    Path("models/tiny").mkdir(parents=True)
    config = {
        "model_type": "llama",
        "hidden_size": 512,
        "num_hidden_layers": 4,
        "num_attention_heads": 8,
    }
    Path("models/tiny/config.json").write_text(json.dumps({**config, "intermediate_size": 2048}))
    Path("jobs").mkdir()
    made = run(
        "init", "--model", "models/tiny", *ANSWERS[2:], "--target", "slurm", "-o", "jobs/dsgen.yaml"
    )
    assert made.exit_code == 0, made.output
    assert dsgen.load_job("jobs/dsgen.yaml").model.hidden == 512


def test_files_of_ones_own_come_back_without_a_word() -> None:
    """What dsgen's launch file does by itself is not said to be left out; modules and setup of the
    spec come back.
    """
    setup = ["ulimit -l unlimited", "export ROOT=$HOME/x", "source ~/e.sh", "module load fast/2"]
    spec = {
        "model": "gpt2",
        "framework": "megatron-lm",
        "cluster": "nvidia/dgx-h100",
        "gpus": 16,
        "training": {"global_batch": 64, "duration": {"steps": 1000}},
        "data": {"path": "/data/text_document", "tokenizer": {"path": "/data/tokenizer"}},
        "output": {"checkpoints": "/runs/gpt2", "logs": "/runs/logs"},
        "launch": {
            "target": "slurm",
            "time_limit": "01:00:00",
            "slurm": {"modules": ["cuda/12.8"], "setup": setup},
        },
    }
    Path("job.json").write_text(json.dumps(spec))
    assert run("generate", "job.json", "-o", "out").exit_code == 0
    result = run("init", "--from", "out", "-o", "again.yaml", "--model", "gpt2")
    assert "not carried over" not in result.stderr
    again = yaml.safe_load(Path("again.yaml").read_text())
    assert again["launch"]["slurm"]["setup"] == setup
    assert again["launch"]["slurm"]["modules"] == ["cuda/12.8"]


PREPARES = """\
ENV=sft
{first}
if [ -f /etc/fast ]; then
  source /etc/fast
fi
eval "$(conda shell.bash hook)"
conda activate $ENV || exit 1
source $ROOT/env.sh; ulimit -l unlimited # of the site
cd work
source relative.sh
pip install one
CMD="torchrun --nproc_per_node 8 train.py --deepspeed ds.json --bf16 --output_dir /o"
eval "$CMD --model_name_or_path gpt2 --per_device_train_batch_size 1"
"""
CARRIED = [
    'eval "$(conda shell.bash hook)"',
    "conda activate sft || exit 1",
    "source $ROOT/env.sh; ulimit -l unlimited # of the site",
]


@pytest.mark.parametrize(
    ("first", "before", "keys"),
    [
        ("module load cuda/12\nsource .venv/bin/activate", [], {"virtual_environment", "modules"}),
        ("module purge\nmodule load cuda/12", ["module purge", "module load cuda/12"], set()),
    ],
)
def test_preparation_is_carried_over_in_its_order(
    first: str, before: list[str], keys: set[str]
) -> None:
    """Lines that prepare the environment come back in their order, with values of the script's own
    variables in them; those that may not run, or mean another file, are named.
    """
    Path("old").mkdir()
    Path("old/ds.json").write_text('{"zero_optimization": {"stage": 2}}')
    head = "#!/bin/bash\n#SBATCH --nodes=1\n#SBATCH --gpus-per-node=8\n"
    Path("old/a.sbatch").write_text(head + PREPARES.format(first=first))
    flags = ("--model", "gpt2", "--cluster", "dgx-h100", "-o", "made.yaml")
    result = run("init", "--from", "old", *flags)
    text = Path("made.yaml").read_text()
    slurm = yaml.safe_load(text)["launch"]["slurm"]
    assert slurm.pop("setup") == [*before, *CARRIED], result.output
    assert set(slurm) == keys
    named = re.findall(r"`(.*)`: a command of the script", text)
    assert named == ["source /etc/fast", "source relative.sh", "pip ..."]


def test_a_shell_target_names_what_prepares_the_environment() -> None:
    """A target without a key for commands has each of them named."""
    Path("old").mkdir()
    Path("old/ds.json").write_text('{"zero_optimization": {"stage": 2}}')
    Path("old/a.sh").write_text(PREPARES.format(first="source .venv/bin/activate"))
    run("init", "--from", "old", "--model", "gpt2", "--cluster", "dgx-h100", "-o", "made.yaml")
    named = re.findall(r"`(.*)`: a command of the script", Path("made.yaml").read_text())
    assert {"source .venv/bin/activate", "conda activate $ENV", "ulimit -l unlimited"} <= {*named}


def test_errors_of_a_front_ends_launch_are_those_of_its_own_file() -> None:
    """What `validate` finds in a front end's launch, `init` says of the same place and writes into
    the spec, and nothing of a launch file that isn't written.
    """
    line = "python3 -m verl.trainer.main_ppo actor_rollout_ref.actor.strategy=megatron"
    batches = "data.train_batch_size=256 actor_rollout_ref.actor.ppo_mini_batch_size=512"
    Path("run.sh").write_text(
        f"#!/bin/bash\n{line} {batches} actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4\n"
    )
    flags = ("--model", "llama-2-7b", "--cluster", "dgx-h100")
    result = run("init", "--from", "run.sh", *flags)
    said = "data.train_batch_size=256 is less than actor_rollout_ref.actor.ppo_mini_batch_size=512"
    assert result.exit_code == 1
    assert re.search(rf"^run.sh:2:\d+: error: {said}", result.stderr, re.MULTILINE)
    assert "as dsgen would write it" not in result.stderr
    assert f"#   run.sh:2: {said}" in Path("dsgen.yaml").read_text()


@pytest.mark.parametrize("option", ["", "--max_seq_length 512"])
def test_a_length_that_no_file_says_is_written_as_assumed(option: str) -> None:
    """The spec has the length on which the plan counts: the files' own, else one that its comment
    and standard error call assumed.
    """
    Path("run.sh").write_text(f"accelerate launch --num_processes 8 train.py {option}\n")
    flags = ("--model", "llama-3.1-8b", "--cluster", "dgx-h100", "-o", "made.yaml")
    made = run("init", "--from", "run.sh", *flags)
    assert made.exit_code == 0, made.output
    text = Path("made.yaml").read_text()
    said = "assumed: training.sequence_length 4096: the files don't say it" in made.stderr
    if option:
        assert (said, "sequence_length: 512\n" in text) == (False, True)
    else:
        assert (said, "sequence_length: 4096  # assumed: " in text) == (True, True)
