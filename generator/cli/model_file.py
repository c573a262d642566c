"""`dsgen catalog model FILE`: the model that a config.json describes, with its parameters.

Where transformers is installed, its count is shown too. It builds the model on torch's meta device,
without weights and without the network.
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

from ..estimate.model_size import active_parameter_count, parameter_count
from ..job.hf_config import ConfigError, model_from_config
from ..text.text import MAX_CONFIG_BYTES, UnusableJson, read_json
from .catalog_text import sizes


class UnusableFile(click.ClickException):
    """A file that isn't the config of a model that can be planned.

    It ends with status 2 but without the usage, as the command line is right.
    """

    exit_code = 2


def model_entry(file: str) -> dict[str, Any]:
    """What is printed of the model in `file`: a config.json, or a folder with one.

    Raises `UnusableFile` with every problem and its hint.
    """
    path = Path(file)
    path = path / "config.json" if path.is_dir() else path
    try:
        config = read_json(path, limit=MAX_CONFIG_BYTES)
    except UnusableJson as unusable:
        raise UnusableFile(f"{file}: {unusable}") from None
    if not isinstance(config, dict):
        raise UnusableFile(f"{file} is not a JSON object with the keys of a model")
    try:
        name = path.resolve().parent.name if path.name == "config.json" else path.stem
        model = model_from_config(config, name=name, source=file)
    except ConfigError as error:
        lines = list[str]()
        for _, message, hint in error.problems:
            lines.append(f"{file}: {message}")
            if hint:
                lines.append(f"hint: {hint}")
        raise UnusableFile("\n".join(lines)) from None

    parameters = parameter_count(model)
    entry: dict[str, Any] = {"name": model.name, "parameters": parameters}
    if model.experts:
        entry["active_parameters"] = active_parameter_count(model)
    return {**entry, **sizes(model), "transformers": _comparison(config, parameters)}


def _comparison(config: Mapping[str, Any], parameters: int) -> str:
    """The parameters that transformers counts beside those that dsgen counts, in words."""
    if find_spec("transformers") is None or find_spec("torch") is None:
        return "not installed, so nothing was compared"
    count = _transformers_count(config)
    if isinstance(count, str):
        return f"can't build it: {count}"
    if count == parameters:
        return f"counts {count:,} parameters too"
    difference = (parameters - count) / count
    return f"counts {count:,} parameters: dsgen has {difference:+.2%}"


def _transformers_count(config: Mapping[str, Any]) -> int | str:
    """The parameters of the language model as transformers builds it, or why it can't."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    torch, transformers = import_module("torch"), import_module("transformers")
    transformers.logging.set_verbosity_error()
    keys = {key: value for key, value in config.items() if key != "model_type"}
    try:
        with torch.device("meta"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            whole_config = transformers.AutoConfig.for_model(config["model_type"], **keys)
            text_config = whole_config.get_text_config()
            model = transformers.AutoModelForCausalLM.from_config(text_config)
    # Each model's class raises what it likes for a config that it can't read.
    except Exception as problem:
        return str(problem).partition("\n")[0][:200] or type(problem).__name__
    count: int = sum(parameter.numel() for parameter in model.parameters())
    return count
