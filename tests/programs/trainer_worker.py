"""Parses command lines with Transformers' own `TrainingArguments`, as the Trainer's script would on
many ranks.

`python trainer_worker.py QUESTIONS.json ANSWERS.json`: each question has `world` and `arguments`,
which name a ds_config file; its answer is what the Trainer made of them, or the error. It runs in a
process of its own because `TrainingArguments` changes the environment and starts a process group.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ.update(HF_HUB_OFFLINE="1", DS_ACCELERATOR="cpu")  # before the imports that read them

from transformers import HfArgumentParser, TrainingArguments


def parse(world: int, arguments: list[str]) -> dict[str, Any]:
    """The Trainer's view of one command line on `world` ranks; raises on any value that differs
    from the JSON.
    """
    at_world = type("TrainingArguments", (TrainingArguments,), {"world_size": world})
    (parsed,) = HfArgumentParser(at_world).parse_args_into_dataclasses(
        [*arguments, "--use_cpu", "true"]
    )
    deepspeed = parsed.hf_deepspeed_config
    deepspeed.trainer_config_finalize(parsed, None, parsed.max_steps)
    return {
        "config": deepspeed.config,
        "micro_batch": parsed.per_device_train_batch_size,
        "gradient_accumulation": parsed.gradient_accumulation_steps,
        "max_steps": parsed.max_steps,
        "dtype": str(deepspeed.dtype()),
        "optim": str(parsed.optim.value),
    }


def main(questions: str, answers: str) -> None:
    """Answer every question."""
    results: list[dict[str, Any]] = []
    for case in json.loads(Path(questions).read_text()):
        try:
            results.append(parse(case["world"], case["arguments"]))
        except ValueError as error:
            results.append({"error": str(error)})
    Path(answers).write_text(json.dumps(results))


if __name__ == "__main__":
    main(*sys.argv[1:])
