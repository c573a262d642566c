"""Data, tokenizer and checkpoints of a spec: what each framework's script is told, and what is left
to its user.
"""

from __future__ import annotations

import os
import subprocess
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import dsgen
from dsgen.job.needs import written_for
from dsgen.programs.frameworks import program_for
from dsgen.programs.launchers import launch_files
from dsgen.programs.megatron.options import Flavour
from dsgen.programs.program import Program, last_step, step_option, steps_of_samples
from dsgen.search.plan import Plan
from tests.jobs import job
from tests.needs import needs_megatron
from tests.programs.places import put
from tests.programs.plans import words
from tests.programs.test_megatron import TREES, parsed

HOSTILE = '/data/it\'s `touch x`; x "q" é'
BPE = {"type": "GPT2BPETokenizer", "vocab_file": "/v", "merges_file": "/m"}
OUTPUT = {"checkpoints": "/c", "logs": "/l", "save_interval": 7}


def planned(framework: str, **spec: Any) -> Plan:
    """The estimate of the small job, for which no search is needed."""
    model = {"framework": framework, "layout__tensor": 1, "layout__pipeline": 1}
    return dsgen.estimate(job(**model, **spec))


def after(program: Program, option: str) -> str | None:
    """The word after an option; `None` where it isn't given."""
    given = words(program)
    return given[given.index(option) + 1] if option in given else None


@pytest.mark.parametrize("tree", TREES)
def test_the_trees_read_data_tokenizer_and_checkpoints(tree: Flavour) -> None:
    """The tree's own options take everything, and every value arrives as it was written."""
    ramp = {"start": 16, "increment": 16, "samples": 1000}
    plan = planned(
        tree,
        data={"path": [0.30, "/data/a", 0.7, HOSTILE], "split": "969,30,1", "tokenizer": BPE},
        output=OUTPUT,
        training__batch_ramp=ramp,
        training__duration={"samples": 5000},
        launch__time_limit="2:00:00",
    )
    read = parsed(program_for(plan), tree)
    assert read["--data-path"] == ["0.3", "/data/a", "0.7", HOSTILE]
    assert [read[f"--{key}"] for key in ("split", "vocab-file", "merge-file")] == [
        "969,30,1",
        "/v",
        "/m",
    ]
    assert [read[f"--{key}"] for key in ("save", "load", "save-interval")] == ["/c", "/c", 7]
    assert read["--tensorboard-dir"] == "/l"
    assert read["--exit-signal-handler"] is True
    if tree == "megatron-lm":  # in tokens of sequences of 2,048
        length = plan.job.training.sequence_length
        assert read["--step-batch-size-schedule"].split()[:2] == ["0:16", f"{500 * length}:32"]
        assert "--global-batch-size" not in read
    else:
        assert [int(size) for size in read["--rampup-batch-size"]] == [16, 16, 1000]
    assert read["--train-samples"] == 5000
    assert "--train-iters" not in read


@pytest.mark.parametrize("tree", TREES)
def test_own_arguments_win(tree: Flavour) -> None:
    """An option that launch.arguments give is not given twice, whatever its form."""
    own = ["--save=/c", "--save-interval", "7", "--data-path", "/d", "--exit-signal-handler"]
    program = program_for(planned(tree, data={"path": "/d"}, output=OUTPUT, launch__arguments=own))
    given = words(program)
    assert (
        sum(word.startswith(("--save", "--data-path", "--exit-signal-handler")) for word in given)
        == 4
    )
    assert after(program, "--load") == "/c"


def test_a_run_that_does_not_resume_loads_nothing() -> None:
    """`resume: false` saves without --load."""
    program = program_for(planned("megatron-lm", output={**OUTPUT, "resume": False}))
    assert after(program, "--save") == "/c"
    assert after(program, "--load") is None


@pytest.mark.parametrize(
    ("slurm", "minutes"),
    [
        *(({"continue": "none"}, "110"), ({"continue": "chain"}, "110"), ({}, None)),
        *(({"continue": "requeue"}, None), ({"signal_seconds": 300}, None)),
    ],
)
def test_the_program_ends_before_the_limit_where_no_signal_ends_it(
    slurm: dict[str, Any], minutes: str | None
) -> None:
    """Of two hours, ten minutes are kept to save in; a job that a signal ends doesn't exit by
    itself.
    """
    plan = planned("megatron-lm", output=OUTPUT, launch__time_limit="2:00:00", launch__slurm=slurm)
    assert after(program_for(plan), "--exit-duration-in-mins") == minutes


HUNDRED: dict[str, Any] = {"training__duration": {"steps": 100}}


@pytest.mark.parametrize(
    ("spec", "step"),
    [
        (
            {
                **HUNDRED,
                "megatron_version": "0.17.1",
                "training__batch_ramp": {"start": 16, "increment": 16, "samples": 1000},
            },
            126,
        ),
        ({**HUNDRED, "training__batch_ramp": {"start": 16, "increment": 16, "samples": 1000}}, 127),
        ({"launch__arguments": ["--train-samples", "4096"]}, 85),
        ({"launch__arguments": ["--train-samples", "4096", "--train-tokens", "999"]}, 0),
        ({"launch__arguments": ["--train-iters=70"]}, 70),
        (HUNDRED, 100),
    ],
)
def test_the_last_step_is_known_however_the_length_is_given(
    spec: dict[str, Any], step: int
) -> None:
    """Steps, and samples with or without a ramp, say the last step; tokens, which Megatron counts
    as it goes, don't.
    """
    plan = planned("megatron-lm", output=OUTPUT, **spec)
    assert last_step(plan, program_for(plan)) == step


@pytest.mark.parametrize("tree", TREES)
@pytest.mark.parametrize(
    ("tokenizer", "kind"),
    [
        (
            {"path": "/t"},
            {"megatron-lm": "HuggingFaceTokenizer", "megatron-deepspeed": "HFTokenizer"},
        ),
        ({"path": "/t/x.model"}, dict.fromkeys(TREES, "GPTSentencePieceTokenizer")),
        ({"vocab_file": "/v", "merges_file": "/m"}, dict.fromkeys(TREES, "GPT2BPETokenizer")),
    ],
)
def test_the_kind_of_a_tokenizer_follows_from_its_files(
    tree: Flavour, tokenizer: dict[str, str], kind: dict[str, str]
) -> None:
    """A folder is a tokenizer of transformers by the tree's own name, a .model SentencePiece's,
    merges GPT-2's.
    """
    program = program_for(planned(tree, data={"tokenizer": tokenizer}))
    assert after(program, "--tokenizer-type") == kind[tree]


@pytest.mark.parametrize("tree", TREES)
def test_a_null_tokenizer_has_the_models_vocabulary(tree: Flavour) -> None:
    """Its vocabulary is --vocab-size and an end token: 32,000 tokens are 31,999 and one."""
    program = program_for(planned(tree, data={"tokenizer": {"type": "NullTokenizer"}}))
    assert after(program, "--vocab-size") == "31999"


@pytest.mark.parametrize(
    ("framework", "spec", "packages"),
    [
        ("huggingface", {}, {"flash-attn"}),
        ("huggingface", {"output": {"logs": "/l"}}, {"flash-attn", "tensorboard"}),
        (
            "huggingface",
            {"launch": {"arguments": ["--report_to", "none"]}, "output": {"logs": "/l"}},
            {"flash-attn"},
        ),
        ("huggingface", {"launch": {"arguments": ["--attn_implementation", "sdpa"]}}, set()),
        ("huggingface", {"launch": {"arguments": ["--attn-implementation=sdpa"]}}, set()),
        (
            "huggingface",
            {"launch": {"arguments": ["--report-to", "wandb"]}, "output": {"logs": "/l"}},
            {"flash-attn"},
        ),
        (
            "huggingface",
            {"launch": {"script": "sft.py"}, "training__lora": {"rank": 8, "base": "4bit"}},
            {"flash-attn", "trl", "peft", "bitsandbytes"},
        ),
        (
            "huggingface",
            {"training__attention": "unfused", "training__kernels": "fused"},
            {"liger-kernel"},
        ),
        ("megatron-lm", {"data": {"tokenizer": {"path": "org/name"}}}, {"transformers"}),
        ("megatron-lm", {"data": {"tokenizer": {"path": "/t/a.model"}}}, {"sentencepiece"}),
        (
            "megatron-deepspeed",
            {"data": {"tokenizer": {"path": "org/name"}}},
            {"transformers", "flash-attn"},
        ),
    ],
)
def test_packages_that_only_some_jobs_import_are_written_for(
    framework: str, spec: dict[str, Any], packages: set[str]
) -> None:
    """The versions name what this job's arguments make the programs import, and no more."""
    others = (
        "flash-attn",
        "tensorboard",
        "trl",
        "peft",
        "bitsandbytes",
        "liger-kernel",
        "sentencepiece",
    )
    made = planned(framework, **spec).job
    found = written_for(made).keys() & {
        *others,
        *(() if framework == "huggingface" else ("transformers",)),
    }
    assert found == packages


def test_the_trainer_is_told_in_its_own_terms() -> None:
    """A file is --train_file, a data set --dataset_name; the Trainer saves where and when the spec
    says.
    """
    program = program_for(
        planned(
            "huggingface", data={"path": "/d/a.json", "tokenizer": {"path": "/t"}}, output=OUTPUT
        )
    )
    pairs = {
        "--train_file": "/d/a.json",
        "--tokenizer_name": "/t",
        "--output_dir": "/c",
        "--save_steps": "7",
    }
    assert {option: after(program, option) for option in pairs} == pairs
    assert program.environment["TENSORBOARD_LOGGING_DIR"] == "/l"
    assert after(program, "--report_to") == "tensorboard"
    assert (
        after(program_for(planned("huggingface", data={"path": "/d/a"})), "--dataset_name")
        == "/d/a"
    )
    assert (
        after(program_for(planned("huggingface", data={"path": "a.jsonl"})), "--train_file")
        == "a.jsonl"
    )


def test_an_option_is_left_to_the_job_in_either_spelling() -> None:
    """An option that the job gives with dashes isn't given again with underscores, nor said to be
    the script's.
    """
    own = [
        "--learning-rate=2e-5",
        "--attn-implementation",
        "flash_attention_2",
        "--max-steps",
        "70",
    ]
    plan = planned("huggingface", launch__arguments=own, training__learning_rate=2e-5)
    program = program_for(plan)
    assert {"--learning_rate", "--max_steps"}.isdisjoint(words(program))
    assert "attn_implementation" not in " ".join(program.notes)
    assert last_step(plan, program) == 70
    # which the launch files look for among the arguments
    assert step_option(program) == "--max-steps"


def test_the_trainers_examples_are_told_to_train() -> None:
    """run_clm.py trains with --do_train only: it is given once, also where launch.arguments have
    it.
    """
    assert after(program_for(planned("huggingface")), "--do_train") == "true"
    program = program_for(planned("huggingface", launch__arguments=["--do_train"]))
    assert [word for word in words(program) if word.startswith("--do_train")] == ["--do_train"]


def test_a_script_of_ones_own_is_told_once_what_to_do() -> None:
    """Plain DeepSpeed saves and loads nothing: the script gets folder and interval, and a note says
    which calls.
    """
    plan = planned("deepspeed", data={"path": ["/a", "/b"]}, output=OUTPUT)
    program = program_for(plan)
    given = words(program)
    assert given[given.index("--data_path") :][:3] == ["--data_path", "/a", "/b"]
    assert [after(program, f"--{key}") for key in ("save_dir", "load_dir", "save_interval")] == [
        "/c",
        "/c",
        "7",
    ]
    (note,) = (note for note in program.notes if "save_checkpoint" in note)
    assert "load_checkpoint" in note
    assert "every 7 steps" in note


def test_a_scripts_own_names_for_folders_are_left_alone() -> None:
    """Where launch.arguments hold a folder under the script's own option, nothing of it is given
    again.
    """
    own = ["--ckpt", "/c", "--every", "7", "--corpus=/a"]
    program = program_for(
        planned("deepspeed", data={"path": "/a"}, output=OUTPUT, launch__arguments=own)
    )
    assert not {"--data_path", "--save_dir", "--load_dir", "--save_interval"} & set(words(program))


@pytest.mark.parametrize(
    ("whole", "broken", "last"),
    [((), (), None), ((5, 100, 20), (), 100), ((5, 8), (30, 40, 50), 8), ((), (10,), None)],
)
def test_the_trainer_goes_on_from_its_last_whole_checkpoint(
    tmp_path: Path, whole: tuple[int, ...], broken: tuple[int, ...], last: int | None
) -> None:
    """The launch script finds the checkpoint of most steps whose last file is whole, and none in an
    empty folder.
    """
    folder = tmp_path / "it's a run"
    for step in (*whole, *broken):
        (folder / f"checkpoint-{step}").mkdir(parents=True)
    for step in whole:
        (folder / f"checkpoint-{step}" / "trainer_state.json").write_text("{}")
    for step, state in zip(broken, ("", '{"global'), strict=False):
        (folder / f"checkpoint-{step}" / "trainer_state.json").write_text(state)
    plan = planned(
        "huggingface", gpus=8, output={"checkpoints": str(folder)}, launch={"target": "shell"}
    )
    program = program_for(plan)
    for file in (*program.files, *launch_files(plan, program)):
        (tmp_path / file.path).write_text(file.text)
    torchrun = tmp_path / "torchrun"
    torchrun.write_text('#!/bin/bash\nprintf "%s\\n" "$@"\n')
    torchrun.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "launch.sh"],
        cwd=tmp_path,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    given = done.stdout.splitlines()
    found = (
        given[given.index("--resume_from_checkpoint") + 1]
        if "--resume_from_checkpoint" in given
        else None
    )
    assert found == (None if last is None else str(folder / f"checkpoint-{last}"))


@pytest.mark.parametrize("tree", TREES)
def test_a_ramp_up_of_our_own_is_no_finding(tree: Flavour, tmp_path: Path) -> None:
    """The options of a batch ramp-up are those of the version that the files are written for:
    validate says nothing.
    """
    ramp = {"start": 16, "increment": 16, "samples": 1000}
    plan = planned(tree, training__batch_ramp=ramp, training__duration={"samples": 5000})
    put((*program_for(plan).files, *launch_files(plan, program_for(plan), "dsgen")), tmp_path)
    found = {finding.rule for finding in dsgen.validate(str(tmp_path))}
    assert not found & {"MLM029", "MDS009", "FILE007"}, found


def test_the_trainer_keeps_as_many_checkpoints_as_asked() -> None:
    """`output.keep` is the Trainer's limit, which its own parser reads; left out, it is four."""
    assert (
        after(
            program_for(planned("huggingface", output={**OUTPUT, "keep": 3})), "--save_total_limit"
        )
        == "3"
    )
    assert after(program_for(planned("huggingface", output=OUTPUT)), "--save_total_limit") == "4"


@pytest.mark.parametrize(
    ("script", "arguments", "lacks"),
    [
        ("run_clm.py", [], True),
        ("run_clm.py", ["--model_name_or_path", "gpt2"], False),
        ("examples/run_mlm.py", ["--config_name=gpt2"], False),
        ("train.py", [], False),
    ],
)
def test_example_scripts_of_the_trainer_need_a_model(
    script: str, arguments: list[str], lacks: bool
) -> None:
    """A tokenizer alone is not enough for the example scripts, which load a model by name."""
    tokenizer = {"path": "/t"}
    given = planned(
        "huggingface",
        data={"path": "/d", "tokenizer": tokenizer},
        output=OUTPUT,
        launch__script=script,
        launch__arguments=arguments,
    )
    assert ("model" in {each.what for each in given.missing}) == lacks


def calculators() -> ModuleType:
    """Megatron-Core's module that counts batches, without the package, whose import warns."""
    (root,) = find_spec("megatron").submodule_search_locations  # type: ignore[union-attr, misc]
    path = Path(root, "core", "num_microbatches_calculator.py")
    spec = spec_from_file_location("calculators", path)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@needs_megatron
@pytest.mark.parametrize("ramp", [(), (16, 16, 1000), (4, 4, 5000), (40, 8, 900), (8, 40, 70)])
def test_samples_make_as_many_steps_as_megatron_counts(ramp: tuple[int, ...]) -> None:
    """Samples are as many steps as Megatron-Core's calculator of batches takes until they are used
    up.
    """
    calculator = calculators().RampupBatchsizeNumMicroBatchesCalculator
    for samples in (1, 47, 960, 1000, 4096, 100_000):
        batch, consumed, steps = 48, 0, 0
        if ramp:
            counted = calculator(batch, 1, 1, False, 1, *ramp)
            while consumed <= min(ramp[2], samples):
                counted.update(consumed, consistency_check=False)
                consumed += counted.get_current_global_batch_size()
                steps += 1
        steps += max(0, samples - consumed) // batch
        assert steps_of_samples(samples, batch, ramp) == steps, samples
