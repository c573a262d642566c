"""Plan, check and write the files of a large training run."""

from .version import __version__

__all__ = ["__version__"]
