"""Random specs whose data and folders AzureML mounts: azure-ai-ml loads their jobs, and validate
has nothing to say.
"""

from __future__ import annotations

import logging
import random
from pathlib import Path
from typing import Any

import pytest

import dsgen
from tests.needs import needs_azure
from tests.programs.places import put

pytestmark = pytest.mark.filterwarnings("ignore:::azure", "ignore:::marshmallow", "ignore:::msrest")

DATA = (
    "azureml:corpus:1/a b",
    "azureml:corpus@latest/x",
    "azureml://datastores/s/paths/p/q",
    "${{inputs.own}}/t",
    "/x",
    "https://a.blob.core.windows.net/c/x.json",
    "wasbs://c@a.blob.core.windows.net/p/q",
    "abfss://c@a.dfs.core.windows.net/p",
)
FOLDERS = (
    "azureml://datastores/s/paths/run",
    "${{outputs.first}}/r",
    "${{outputs.second}}",
    "/scratch/x",
)
INPUTS: tuple[object, ...] = (
    "azureml:a:1",
    {"path": "azureml:t:1", "type": "mltable"},
    {"path": ".", "mode": "download"},
)
OUTPUTS: tuple[object, ...] = (
    "azureml://datastores/s/paths/o",
    {"mode": "rw_mount"},
    {"name": "checkpoints"},
)


def spec(rng: random.Random) -> dict[str, Any]:
    """A job of any framework with data, tokenizer, folders, declared inputs and outputs."""
    framework = rng.choice(("deepspeed", "huggingface", "megatron-deepspeed", "megatron-lm"))
    files = {
        "type": "GPT2BPETokenizer",
        "vocab_file": rng.choice(DATA),
        "merges_file": rng.choice(DATA),
    }
    tokenizer = files if "megatron" in framework else {"path": rng.choice(DATA)}
    own = {
        "environment": "training:1",
        "compute": "gpus",
        "inputs": {"own": rng.choice(INPUTS)},
        "outputs": {"first": rng.choice(OUTPUTS), "second": rng.choice(OUTPUTS)},
    }
    return {
        "framework": framework,
        "model": "gpt3-1.3b",
        "gpus": 16,
        "cluster": "azure/standard_nd96amsr_a100_v4",
        "training": {"global_batch": 256, "sequence_length": 2048, "duration": {"steps": 100}},
        "data": {"path": rng.choice(DATA), "tokenizer": tokenizer},
        "output": {"checkpoints": rng.choice(FOLDERS), "logs": rng.choice(FOLDERS)},
        "launch": {
            "target": "azureml",
            "arguments": ["--data-cache-path", "${{outputs.first}}/c"],
            "azureml": own,
        },
    }


@needs_azure
@pytest.mark.integration
def test_azure_loads_what_validate_finds_sound(tmp_path: Path) -> None:
    """60 random jobs load and become requests with as many inputs as they bind, and draw no error
    or warning.
    """
    from azure.ai.ml import load_job

    logging.disable(logging.CRITICAL)
    rng = random.Random(13)
    try:
        for number in range(60):
            answer = dsgen.search(dsgen.load_job(spec(rng)), top=1)
            assert isinstance(answer, dsgen.SearchResult)
            folder = tmp_path / str(number)
            put(dsgen.render(answer.plans[0]), folder)
            (folder / answer.plans[0].job.launch.script).touch()
            sent = load_job(folder / "job.yml")._to_job()._to_rest_object().as_dict()["properties"]
            assert {"first", "second"} <= set(sent["outputs"])
            told = [
                finding for finding in dsgen.validate(folder) if finding.severity.value != "note"
            ]
            assert told == []
    finally:
        logging.disable(logging.NOTSET)
