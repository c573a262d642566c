"""Job spec text to `Job`; Hugging Face config.json to a model."""

from .load import load, load_with_findings
from .overrides import parse_value
from .records import Cluster, Job, Launch, Origin, Pins, Training

__all__ = [
    "Cluster",
    "Job",
    "Launch",
    "Origin",
    "Pins",
    "Training",
    "load",
    "load_with_findings",
    "parse_value",
]
