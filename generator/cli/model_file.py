"""`dsgen catalog model FILE`: the model of a config.json, and whether transformers counts the same.

Transformers builds it on torch's meta device, without weights and without the network.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from ..estimate.model_size import parameter_count
from ..job.hf_config import ConfigError, model_from_config
from ..text.text import MAX_CONFIG_BYTES, UnusableJson, read_json
from .catalog_text import sizes


def model_entry(file: str) -> dict[str, Any]:
    """The model of a config as data, with transformers' count where that is installed.

    Raises `click.UsageError` for a file that is no config of a model that can be planned.
    """
    path = Path(file)
    path = path / "config.json" if path.is_dir() else path
    try:
        config = read_json(path, limit=MAX_CONFIG_BYTES)
    except UnusableJson as unusable:
        raise click.UsageError(f"{file}: {unusable}") from None
    if not isinstance(config, dict):
        raise click.UsageError(f"{file} is no mapping of a model's keys")
    try:
        name = path.resolve().parent.name if path.name == "config.json" else path.stem
        model = model_from_config(config, name=name, source=file)
    except ConfigError as error:
        raise click.UsageError(f"{file}: {error}") from None
    parameters = parameter_count(model)
    return {
        "name": model.name,
        "parameters": parameters,
        **sizes(model),
        "transformers": _compared(config, parameters),
    }


def _compared(config: Mapping[str, Any], parameters: int) -> str:
    """What transformers counts, beside what dsgen does."""
    if find_spec("transformers") is None or find_spec("torch") is None:
        return "not installed, so that nothing was compared"
    count = _count(config)
    if isinstance(count, str):
        return f"can't build it: {count}"
    if count == parameters:
        return f"counts {count:,} parameters too"
    share = (parameters - count) / count
    return f"counts {count:,} parameters: dsgen has {share:+.2%}"


def _count(config: Mapping[str, Any]) -> int | str:
    """Parameters of the language model as transformers builds it, or why it doesn't."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    torch, transformers = import_module("torch"), import_module("transformers")
    transformers.logging.set_verbosity_error()
    keys = {key: value for key, value in config.items() if key != "model_type"}
    try:
        with torch.device("meta"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            known = transformers.AutoConfig.for_model(config["model_type"], **keys)
            text = known.get_text_config()
            model = transformers.AutoModelForCausalLM.from_config(text)
    except Exception as problem:  # whatever a class says of its config
        return str(problem).partition("\n")[0][:200] or type(problem).__name__
    count: int = sum(parameter.numel() for parameter in model.parameters())
    return count
