"""DeepSpeed: its config, written and checked."""

from typing import Final

ZERO: Final = "/zero_optimization"  #: the pointer of the block in a config
