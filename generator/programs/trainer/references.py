"""The DeepSpeed config that a file names: accelerate's config, or TrainingArguments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from ...submission.references import Reference
from ...text.lookup import Files
from ..launching.references import named_config
from .accelerate import AccelerateConfig
from .training_arguments import TrainingArguments


def of_accelerate(
    config: AccelerateConfig, files: Files, _: Mapping[int, str]
) -> Iterator[Reference]:
    """The file that accelerate's config names; it needn't be there where DeepSpeed isn't used."""
    where = config.locate("deepspeed_config/deepspeed_config_file")
    for link in named_config(config.config_file, where, files, "accelerate"):
        yield link if config.uses_deepspeed else replace(link, sure=False)


def of_arguments(
    arguments: TrainingArguments, files: Files, _: Mapping[int, str]
) -> Iterator[Reference]:
    """The file that arguments in a file name. On a launch line, the line's own reader finds it."""
    if arguments.launch is None:
        where = arguments.locate("deepspeed")
        yield from named_config(arguments.value("deepspeed"), where, files, "huggingface")
