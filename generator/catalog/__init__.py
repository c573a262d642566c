"""Facts on hardware and models, every entry with its source."""

from .model import Model, model_of
from .names import closest, find_accelerator, find_model, find_node_type
from .records import (
    Accelerator,
    Catalog,
    Generation,
    ModelEntry,
    NodeType,
    load_catalog,
    load_models,
)

__all__ = [
    "Accelerator",
    "Catalog",
    "Generation",
    "Model",
    "ModelEntry",
    "NodeType",
    "closest",
    "find_accelerator",
    "find_model",
    "find_node_type",
    "load_catalog",
    "load_models",
    "model_of",
]
