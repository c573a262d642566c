"""Megatron-Bridge's own config code, in a Python that has what it needs: asked by
`benchmarks.agreement_bridge`.

`python bridge_worker.py BRIDGE CORE` reads a request a line as JSON, the words of run_recipe.py
with the world's size, and answers with the config that it would train with, or why it refuses them.
Modules that need a GPU's libraries are left empty. Nothing of dsgen is imported here.
"""

from __future__ import annotations

import abc
import dataclasses
import enum
import importlib
import importlib.abc
import importlib.machinery
import json
import logging
import os
import sys
import types
import typing
import warnings
from typing import Any, Final

import typing_extensions

#: Packages that need a GPU, or that no text model reads.
EMPTY: Final = (
    "triton",
    "transformer_engine",
    "transformer_engine_torch",
    "nvidia_resiliency_ext",
    "megatron.energon",
    "modelopt",
    "nemo_run",
    "wandb",
    "mlflow",
    "comet_ml",
    "qwen_vl_utils",
    "open_clip",
    "diffusers",
    "mistral_common",
    "fast_hadamard_transform",
    "webdataset",
    "tensorstore",
    "zarr",
    "multi_storage_client",
    "onnxscript",
    "nvdlfw_inspect",
    "cut_cross_entropy",
    "av",
    "decord",
    "easydict",
    "imageio",
    "ftfy",
    "cudnn",
)


class _Anything(abc.ABCMeta):
    """A class that has whatever is asked of it."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_, **__: None


def _made(
    self: object,
    *_: Any,
    master_weight_dtype: Any = None,  # these are asked for by name, of an optimizer
    exp_avg_dtype: Any = None,
    exp_avg_sq_dtype: Any = None,
    use_decoupled_grad: Any = None,
    **__: Any,
) -> None:
    """What makes an object of such a class."""


class _Module(types.ModuleType):
    """A module whose names are modules, where they are lower case, or classes; called, it leaves
    what it decorates as it is.
    """

    def __call__(self, *given: Any, **_: Any) -> Any:
        return given[0] if given and callable(given[0]) else (lambda decorated, *_: decorated)

    def __getattr__(self, name: str) -> Any:
        if name == "__version__":
            return "2.16.0"
        if name.startswith("__"):
            raise AttributeError(name)
        if name.islower():
            return importlib.import_module(f"{self.__name__}.{name}")
        body = {"__module__": self.__name__, "__init__": _made}
        found = _Anything(name, (), body)
        setattr(self, name, found)
        return found


class _Empty(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports the packages above as empty ones."""

    def find_spec(
        self, name: str, path: object, target: object = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The module, if it is one of those named or within one."""
        if any(name == known or name.startswith(f"{known}.") for known in EMPTY):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        """Make an empty one."""
        module = _Module(spec.name)
        module.__path__ = []
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        """It has no code."""


def plain(value: Any) -> Any:
    """A config as JSON has it; enums and types by their names."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.fields(value)
        return {field.name: plain(getattr(value, field.name, None)) for field in fields}
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    if isinstance(value, dict):
        return {str(key): plain(each) for key, each in value.items()}
    if callable(value) and hasattr(value, "__name__"):
        return value.__name__
    return value if value is None or isinstance(value, (int, float, str)) else str(value)


def answer(run: Any, update: Any, words: list[str], log: list[str]) -> dict[str, Any]:
    """What run_recipe.py makes of words up to where it would train."""
    log.clear()
    key = "checkpoint.pretrained_checkpoint="
    weights = next(
        (word.removeprefix(key).strip("'") for word in words if word.startswith(key)), ""
    )
    run.AutoBridge.folder = weights  # of the config that a recipe of a model reads
    try:
        arguments, overrides = run.parse_args(words)
        mode = "pretrain" if arguments.mode == "pretrain" else "finetune"
        config = run._apply_dataset(run._load_selected_recipe(arguments), arguments)
        config = run.apply_cli_overrides(config, overrides)
        config = run.sync_model_pipeline_layout(config, cli_overrides=overrides)
        config = run.sync_finetuning_cp_invariants(config, mode=mode)
        config = run.sync_offline_packing_alignment(config)
        config = run.sync_model_dataset_sequence_length(config)
        update(config)
        layers = str(config.model.transformer_layer_spec(config.model))
    except (Exception, SystemExit) as error:
        return {"error": f"{type(error).__name__}: {error}"[:1000]}
    return {
        "config": {**plain(config), "data_parallel_size": config.data_parallel_size},
        "layers": layers,
        "warnings": list(log),
    }


def main() -> None:
    """Answer requests until there are no more."""
    bridge, core = sys.argv[1:]
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the libraries print
    warnings.simplefilter("ignore")
    typing.override = typing_extensions.override  # type: ignore[attr-defined,unused-ignore]
    sys.meta_path.append(_Empty())
    scripts = (f"{bridge}/scripts/{name}" for name in ("training", "common"))
    sys.path[:0] = [f"{bridge}/src", core, *scripts]
    import megatron  # type: ignore[import-not-found,unused-ignore]
    import torch

    device = types.SimpleNamespace(major=9, minor=0, name="NVIDIA H100 80GB HBM3")
    torch.cuda.get_device_properties = lambda *_: device  # type: ignore[assignment]
    megatron.__path__ = [f"{bridge}/src/megatron", f"{core}/megatron"]
    run: Any = importlib.import_module("run_recipe")
    update: Any = importlib.import_module("megatron.bridge.training.config").runtime_config_update

    run.AutoBridge = importlib.import_module("megatron.bridge").AutoBridge
    read = run.AutoBridge.from_hf_pretrained.__func__
    run.AutoBridge.from_hf_pretrained = classmethod(
        lambda cls, path, **given: read(cls, cls.folder or path, **given)
    )

    log: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: log.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger().addHandler(handler)

    print("ready", file=out, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        os.environ.pop("CUDA_DEVICE_MAX_CONNECTIONS", None)
        os.environ |= {"WORLD_SIZE": str(request["world"]), "RANK": "0", "LOCAL_RANK": "0"}
        os.environ |= request["environment"]
        print(json.dumps(answer(run, update, request["words"], log)), file=out, flush=True)


if __name__ == "__main__":
    main()
