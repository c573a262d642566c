"""Launch scripts as jobs: what the rules on layouts say of a layout, they say of the arguments that
make it.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dsgen
from dsgen.check.rules import fits, planning
from dsgen.check.rules.run import all_file_rules
from dsgen.estimate.layout import Layout, Offload, Recompute
from dsgen.findings import Severity, Violation
from dsgen.job.records import Pins
from dsgen.programs.deepspeed.config import DsConfig
from dsgen.programs.frameworks import program_for
from dsgen.programs.megatron.arguments import MegatronArguments, read_file
from dsgen.programs.megatron.facts import at_least, megatron_facts
from dsgen.programs.megatron.options import Flavour, option_table
from dsgen.programs.megatron.run import megatron_runs
from dsgen.programs.megatron.vocabulary import OF_OPTIONS
from dsgen.programs.records import PROGRAMS
from dsgen.rule import Rule, rules_in
from dsgen.rules.run import LAYOUT_RULES
from dsgen.submission.submission import Context, Submission
from dsgen.text.hjson.text import read_json
from dsgen.text.text import text_of
from tests.case import NAMES, read_case
from tests.programs.places import read_by
from tests.programs.plans import GPT, LLAMA, MIXTRAL, make_job, make_plan, words

SHARED = {rule.id: rule for rule in planning.RULES}
MEGATRONS = ("megatron-lm", "megatron-deepspeed")
MODULES = re.compile(r"\.programs\.megatron\.rules|\.check\.rules\.(planning|fits)")
MINE = tuple(rule for rule in all_file_rules() if MODULES.search(rule.check.__module__))
KEYS = re.compile(
    r"\b(data|tensor|pipeline|virtual_pipeline|context|expert|sequence_parallel|zero_stage"
    r"|micro_batch|gradient_accumulation|recompute|offload|global_batch|sequence_length|framework"
    r"|gpus|vocab_size): "
)


def text_file(content: str, path: str = "arguments.txt") -> Any:
    """A text as read from a file."""
    return text_of(content, path)


def submission_of(
    lines: list[str], config: dict[str, object] | None = None, **given: Any
) -> Submission:
    """A file of arguments, and perhaps a DeepSpeed config, with what is said beside them."""
    documents: list[Any] = [read_by(read_file, text_file("\n".join(lines)))]
    if config is not None:
        documents.append(DsConfig(json=read_json(text_file(json.dumps(config), "ds_config.json"))))
    return Submission(programs=PROGRAMS, documents=tuple(documents), context=Context(**given))


def violations(rule: Rule, submission: Submission) -> list[Violation]:
    """The violations of a rule in a submission."""
    return [violation for subject in rule.subjects(submission) for violation in rule.check(subject)]


def rendered(framework: str, model: Any, layout: Layout) -> Submission:
    """The arguments that dsgen writes for a layout, as a submission on as many GPUs."""
    job = make_job(framework, model, gpus=layout.world, global_batch=layout.global_batch)
    program = program_for(make_plan(job, layout))
    line = " ".join(words(program))
    config = json.loads(program.files[0].text) if program.files else None
    return submission_of([line], config, gpus=layout.world, cluster=job.cluster)


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    """Layouts of which many break some rule."""
    small = st.sampled_from([1, 1, 2, 3, 4, 8])
    return Layout(
        data=draw(small),
        tensor=draw(st.sampled_from([1, 1, 2, 3, 4, 8, 16])),
        pipeline=draw(st.sampled_from([1, 1, 2, 4, 5])),
        virtual_pipeline=draw(st.sampled_from([1, 1, 2])),
        context=draw(st.sampled_from([1, 1, 2, 3, 8])),
        expert=draw(st.sampled_from([1, 1, 2, 3, 8])),
        sequence_parallel=draw(st.booleans()),
        zero_stage=draw(st.sampled_from([0, 1, 2, 3])),
        micro_batch=draw(st.sampled_from([1, 2])),
        gradient_accumulation=draw(st.sampled_from([1, 3, 8])),
        recompute=draw(st.sampled_from([Recompute.NONE, Recompute.FULL])),
    )


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(MEGATRONS), st.sampled_from([GPT, LLAMA, MIXTRAL]), layouts())
def test_arguments_break_the_rules_that_their_layout_breaks(
    framework: str, model: Any, layout: Layout
) -> None:
    """Rendered arguments break a shared layout rule if and only if the layout does."""
    if framework == "megatron-lm":  # further stages are FSDP's, which these rules don't judge
        layout = replace(layout, zero_stage=min(layout.zero_stage, 1))
    else:
        layout = replace(layout, virtual_pipeline=1)
    if not model.experts:
        layout = replace(layout, expert=1)
    submission = rendered(framework, model, layout)
    job = make_job(framework, model, gpus=layout.world, global_batch=layout.global_batch)
    job = replace(job, pins=Pins(tensor=layout.tensor, pipeline=layout.pipeline))
    for rule in LAYOUT_RULES:
        document_rule = SHARED.get(rule.id)
        if (
            document_rule is None
            or not rule.columns.binds(job)
            or rule.id in ("MLM040", "MOE005", "PIPE013")
        ):
            continue
        if rule.id in ("MLM016", "MLM014") and (
            layout.pipeline == 1 or model.layers % layout.pipeline
        ):
            continue  # chunks of stages that can't be cut
        if rule.id == "MLM041" and layout.expert * layout.tensor == 0:
            continue
        if rule.id == "MLM041":  # dsgen writes an expert tensor parallel size of its own
            continue
        broken = not rule.columns.holds(job, layout)
        assert bool(violations(document_rule, submission)) == broken, (rule.id, layout)


def test_every_message_is_in_the_words_of_options() -> None:
    """Nothing of a job spec's keys is left in the messages and hints of the cases for arguments."""
    for case in map(read_case, NAMES):
        told = case.expected
        if case.rule in SHARED and not case.name.endswith("_spec") and "launch" in told:
            lines = [line for line in told.splitlines() if line.startswith(("launch", "hint:"))]
            assert not [line for line in lines if KEYS.search(line)], case.name


@pytest.mark.parametrize("flavour", MEGATRONS)
def test_every_decision_has_a_name_among_the_options(flavour: Flavour) -> None:
    """Every layout key, with any value that a Megatron runs, is said in options or plain words."""
    values: dict[str, tuple[object, ...]] = {
        **dict.fromkeys(
            ("data", "tensor", "pipeline", "virtual_pipeline", "context", "expert"), (1, 2)
        ),
        **dict.fromkeys(
            ("micro_batch", "global_batch", "gpus", "gradient_accumulation", "sequence_length"),
            (1, 2),
        ),
        "sequence_parallel": (True, False),
        "zero_stage": (0, 1, 2, 3),
        "recompute": tuple(Recompute),
        "offload": tuple(Offload),
        "precision": ("fp32", "fp16", "bf16", "fp8"),
        "attention": ("flash", "unfused"),
    }
    says = OF_OPTIONS[flavour].says
    for key, choices in values.items():
        for choice in choices:
            assert not KEYS.search(says(key, choice)) and ":" not in says(key, choice), (
                key,
                choice,
            )
    assert says("data", 4, 8) == "4 or 8 replicas" and says("gpus", 16, 32) == "16 or 32 GPUs"
    assert says("gradient_accumulation", 2, 4, 8) == "2, 4 or 8 micro-batches"


def test_rules_keep_their_severity_and_requirement() -> None:
    """A shared rule has the severity and the title that it has on specs."""
    for rule in LAYOUT_RULES:
        if rule.id in SHARED:
            assert (SHARED[rule.id].severity, SHARED[rule.id].title) == (rule.severity, rule.title)


HEADS = [
    "--num-layers 32 --hidden-size 4096 --num-attention-heads 30 --kv-channels 128 "
    "--tensor-model-parallel-size 4"
]


def test_a_rule_needs_no_more_than_its_own_facts() -> None:
    """Heads are held against tensor ranks although neither GPUs, machines nor batch are known."""
    [violation] = violations(SHARED["MLM004"], submission_of(HEADS))
    assert (
        violation.message == "--tensor-model-parallel-size 4 does not divide the 30 attention heads"
    )
    assert violation.hint == "use --tensor-model-parallel-size 1 or 2"
    assert (violation.where.line, violation.where.column) == (1, 79)


def test_what_is_not_known_breaks_nothing() -> None:
    """With an unknown word among the options, or an unknown value, no rule guesses."""
    hidden = [HEADS[0].replace(" 30", " $HEADS")]
    for rule in MINE:
        assert not violations(rule, submission_of(hidden, gpus=8)), rule.id
    more = ["--num-layers 32 --hidden-size 4096 --num-attention-heads 32 $MORE"]
    for rule in MINE:
        assert not violations(rule, submission_of(more, gpus=8)), rule.id


def test_several_jobs_have_gpus_of_their_own(tmp_path: Path) -> None:
    """In a folder of two scripts, each is held against its own GPUs."""
    line = (
        "torchrun --nnodes 1 --nproc-per-node {gpus} pretrain_gpt.py --num-layers 8 "
        "--hidden-size 64 --seq-length 8"
        " --num-attention-heads 4 --max-position-embeddings 8 --micro-batch-size 1 --train-iters 10"
        " --tensor-model-parallel-size {tensor}\n"
    )
    (tmp_path / "small.sh").write_text(line.format(gpus=2, tensor=2), encoding="utf-8")
    (tmp_path / "large.sh").write_text(line.format(gpus=4, tensor=4), encoding="utf-8")
    assert not [finding for finding in dsgen.validate(tmp_path) if finding.rule == "MLM001"]


FIT = {"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": True}}


@pytest.mark.parametrize(
    ("stage", "gpus", "fits_"),
    [(1, 8, False), (3, 8, False), (3, 64, True), (3, None, True)],
    ids=str,
)
def test_a_config_alone_is_held_against_memory(
    tmp_path: Path, stage: int, gpus: int | None, fits_: bool
) -> None:
    """70 billion parameters need more than 8 GPUs of 80 GB, at stage 3 too; without their number
    nobody knows.
    """
    path = tmp_path / "ds_config.json"
    path.write_text(json.dumps({**FIT, "zero_optimization": {"stage": stage}}), encoding="utf-8")
    found = dsgen.validate(path, model="llama-3-70b", cluster="nvidia/dgx-h100", gpus=gpus)
    told = [finding for finding in found if finding.rule == "MEM001"]
    assert bool(told) is not fits_
    assert all(finding.severity is Severity.ERROR and "GiB" in finding.message for finding in told)


def test_adapters_are_not_held_against_the_memory_of_all_parameters(tmp_path: Path) -> None:
    """Where a launch line speaks of LoRA, the model's states say nothing of the run's memory."""
    (tmp_path / "ds_config.json").write_text(
        json.dumps({**FIT, "zero_optimization": {"stage": 2}}), encoding="utf-8"
    )
    script = "deepspeed --num_gpus 8 train.py --lora_r 16 --deepspeed ds_config.json\n"
    (tmp_path / "run.sh").write_text(script, encoding="utf-8")
    found = dsgen.validate(tmp_path, model="llama-3-70b", cluster="nvidia/dgx-h100", gpus=8)
    assert not [
        finding for finding in found if finding.rule.startswith("MEM00") and finding.rule < "MEM003"
    ]


def test_a_config_is_matched_by_name() -> None:
    """Of two configs, the one that the arguments name is theirs; without a name there is none."""
    own = submission_of(["--num-layers 2 --hidden-size 64 --num-attention-heads 4 --zero-stage 1"])
    configs = tuple(
        DsConfig(json=read_json(text_file('{"zero_optimization": {"stage": 3}}', f"{name}.json")))
        for name in "ab"
    )
    both = replace(own, documents=(*own.documents, *configs))
    assert [run.config for run in megatron_runs(both)] == [None]
    one = replace(own, documents=(*own.documents, configs[0]))
    assert [run.config and run.config.path for run in megatron_runs(one)] == ["a.json"]


@st.composite
def wild_lines(draw: st.DrawFn) -> tuple[Flavour, str]:
    """Options with values that no sane run has."""
    flavour = draw(st.sampled_from(MEGATRONS))
    number = st.one_of(
        st.integers(-3, 70), st.integers(), st.sampled_from([0, 1, 10**17, -(10**17)])
    )
    value = st.one_of(
        number.map(str),
        st.floats().map(str),
        st.sampled_from(["", "x", "selective", "full", "$X", "1 2"]),
    )
    name = st.sampled_from([*option_table(flavour).rows, *PLAIN, *PLAIN])  # type: ignore[arg-type]
    pairs = draw(st.lists(st.tuples(name, value), max_size=12))
    start = "--num-layers 2 --hidden-size 64 --num-attention-heads 4" + (
        " --zero-stage 1" if "deep" in flavour else ""
    )
    return flavour, start + " " + " ".join(f"{name} {value}" for name, value in pairs)  # type: ignore[return-value]


PLAIN = (
    *(
        "--tensor-model-parallel-size",
        "--pipeline-model-parallel-size",
        "--context-parallel-size",
        "--num-experts",
    ),
    *(
        "--micro-batch-size",
        "--global-batch-size",
        "--num-layers",
        "--hidden-size",
        "--num-attention-heads",
    ),
    *(
        "--ds-sequence-parallel-size",
        "--expert-model-parallel-size",
        "--moe-expert-parallel-size",
        "--seq-length",
    ),
    *(
        "--num-query-groups",
        "--group-query-attention",
        "--rampup-batch-size",
        "--recompute-granularity",
        "--bf16",
    ),
    *(
        "--num-virtual-stages-per-pipeline-rank",
        "--num-layers-per-virtual-pipeline-stage",
        "--train-iters",
        "--deepspeed",
    ),
    *(
        "--decoder-last-pipeline-num-layers",
        "--decoder-first-pipeline-num-layers",
        "--ffn-hidden-size",
    ),
    *(
        "--expert-tensor-parallel-size",
        "--moe-router-topk",
        "--num-key-value-heads",
        "--kv-channels",
        "--vocab-size",
    ),
)


@settings(max_examples=100, deadline=None)
@given(wild_lines(), st.one_of(st.none(), st.integers(1, 5000)))
def test_no_arguments_make_a_rule_fail(case: tuple[Flavour, str], gpus: int | None) -> None:
    """Whatever the arguments say, every rule answers, with a place and a text."""
    config = {
        "train_batch_size": 8,
        "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}},
    }
    cluster = make_job("megatron-lm").cluster
    submission = submission_of([case[1]], config, gpus=gpus, cluster=cluster, model=LLAMA)
    for rule in MINE:
        for violation in violations(rule, submission):
            assert violation.message and violation.where.path


@pytest.mark.parametrize(("layers", "known"), [("100000", True), ("100001", False)])
def test_more_layers_than_a_model_has_are_not_known(layers: str, known: bool) -> None:
    """Nothing is counted of a billion layers, one by one; a spec may have 100,000."""
    shape = "--hidden-size 4096 --num-attention-heads 32 --seq-length 2048"
    [facts] = megatron_facts(submission_of([f"--num-layers {layers} {shape}"], gpus=8))
    assert facts.knows("layers") is known
    assert at_least(facts.job).model.layers == (int(layers) if known else 1)


def test_empty_arguments_say_nothing() -> None:
    """A file of arguments that is no Megatron's is not judged."""
    arguments = MegatronArguments(path="a", flavour="megatron-lm", values={})
    submission = Submission(programs=PROGRAMS, documents=(arguments,))
    assert not [violation for rule in MINE for violation in violations(rule, submission)]
    assert {rule.id for rule in rules_in(fits)} >= {"MEM001", "MEM002"}
