"""Job spec text to `Job`; Hugging Face config.json to a model."""

from .load import load, load_with_findings
from .overrides import parse_value

__all__ = ["load", "load_with_findings", "parse_value"]
