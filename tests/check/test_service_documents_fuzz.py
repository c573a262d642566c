"""Whatever stands at whatever key, AzureML jobs, accelerate configs and TrainingArguments can be
checked.
"""

from __future__ import annotations

import json
from typing import Any

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from dsgen.check.rules.run import check_submission
from dsgen.facts.shapes import read_schemas
from dsgen.programs.azureml.job import read_azureml
from dsgen.programs.deepspeed.config import DsConfig
from dsgen.programs.records import PROGRAMS
from dsgen.programs.trainer.accelerate import AccelerateConfig
from dsgen.programs.trainer.rules.accelerate import TOP_KEYS
from dsgen.programs.trainer.rules.accelerate_deepspeed import KEYS
from dsgen.programs.trainer.training_arguments import from_file, from_launches, known_arguments
from dsgen.submission.submission import Context, Submission
from dsgen.text.document import Document, read_yaml
from dsgen.text.hjson.text import read_json
from dsgen.text.text import text_of

ODD = [
    None,
    True,
    False,
    0,
    -1,
    3,
    10**25,
    1.5,
    float("nan"),
    float("inf"),
    "",
    "auto",
    "no",
    "1e-5",
    "8",
    "x/~y",
    "é\u2028",
]
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.sampled_from(ODD) | st.text(max_size=5) | st.dates(),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.text(max_size=4) | st.integers(), inner, max_size=2)
    ),
    max_leaves=4,
)
COMMAND_JOB = read_schemas("azureml")["command job"]["properties"]
INNER = sorted({key for schema in COMMAND_JOB.values() for key in schema.get("properties", ())})
JOBS = st.fixed_dictionaries(
    {"type": st.just("command")},
    optional={
        key: VALUES
        | st.dictionaries(
            st.sampled_from([*INNER, "type", "path", "mode", "image", "x/y"]), VALUES, max_size=4
        )
        for key in COMMAND_JOB
        if key != "type"
    },
)
COMMANDS = st.sampled_from(
    [
        "torchrun --nnodes ${{inputs.n}} --nproc_per_node 8 train.py --local_rank=$RANK",
        "accelerate launch --num_processes 8 train.py --deepspeed_config ../../x.json",
        "deepspeed train.py {inputs.a} ${{outputs.b}} '",
    ]
)
ACCELERATE = st.fixed_dictionaries(
    {"distributed_type": st.just("DEEPSPEED") | VALUES},
    optional={
        **{key: VALUES for key in TOP_KEYS if key != "distributed_type"},
        "deepspeed_config": st.dictionaries(st.sampled_from([*KEYS, "x"]), VALUES, max_size=4)
        | VALUES,
        "parallelism_config": st.dictionaries(
            st.sampled_from(["parallelism_config_tp_size"]), VALUES
        )
        | VALUES,
    },
)
ARGUMENTS = st.dictionaries(
    st.sampled_from([*known_arguments(), "evaluation_strategy", "max_seq_length", "learning_rat"]),
    VALUES,
    max_size=12,
)
CONFIGS = st.dictionaries(
    st.sampled_from(
        [
            "train_batch_size",
            "gradient_clipping",
            "optimizer",
            "scheduler",
            "bf16",
            "zero_optimization",
        ]
    ),
    st.sampled_from(ODD[:10])
    | st.fixed_dictionaries({"params": VALUES, "enabled": VALUES, "stage": VALUES, "type": VALUES}),
)


def all_have_words(*documents: Document) -> bool:
    """Ask every rule about a submission of these documents, and whether each finding has a message
    and a JSON form.
    """
    found = check_submission(
        Submission(programs=PROGRAMS, documents=documents, context=Context(gpus=8))
    )
    return all(finding.message and finding.to_dict() for finding in found)


def yaml_of(value: object) -> str:
    """A document's text."""
    return yaml.safe_dump(value, sort_keys=False, allow_unicode=False)


@settings(deadline=None, max_examples=60)
@given(JOBS, COMMANDS)
def test_any_job_is_checked(job: dict[str, Any], command: str) -> None:
    """No value of an AzureML job makes a rule fail."""
    text = text_of(yaml_of({"command": command, **job}), "job.yml")
    read = read_azureml(read_yaml(text), text)
    arguments = from_launches(read.script.launches) if read.script else ()
    assert all_have_words(read, *arguments)


@settings(deadline=None, max_examples=60)
@given(ACCELERATE, CONFIGS)
def test_any_accelerate_config_is_checked(
    config: dict[str, Any], deepspeed: dict[str, Any]
) -> None:
    """No value of an accelerate config makes a rule fail."""
    source = read_yaml(text_of(yaml_of(config), "accelerate.yaml"))
    assert all_have_words(
        AccelerateConfig(source=source),
        DsConfig(json=read_json(text_of(json.dumps(deepspeed, default=str), "ds.json"))),
    )


@settings(deadline=None, max_examples=60)
@given(ARGUMENTS, CONFIGS)
def test_any_arguments_are_checked(arguments: dict[str, Any], deepspeed: dict[str, Any]) -> None:
    """No value of TrainingArguments or of the DeepSpeed config beside them makes a rule fail."""
    source = read_yaml(text_of(yaml_of({**arguments, "deepspeed": "ds.json"}), "train.yaml"))
    assert all_have_words(
        from_file(source.path, source),
        DsConfig(json=read_json(text_of(json.dumps(deepspeed, default=str), "ds.json"))),
    )
