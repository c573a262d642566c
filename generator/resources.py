"""Files of the package, read without `importlib.resources`, whose import takes 10 ms."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any


def read_text(package: str, *names: str) -> str:
    """The text of a file in a package, which may be inside a zip file."""
    module = import_module(package)
    loader: Any = module.__loader__
    data: bytes = loader.get_data(str(Path(module.__path__[0], *names)))
    return data.decode()


def file_names(package: str, folder: str) -> list[str]:
    """Names of the files in a folder of a package."""
    path = Path(import_module(package).__path__[0], folder)
    if path.is_dir():
        return [file.name for file in path.iterdir()]
    from importlib.resources import files  # here, to save start-up time: in a zip file alone

    return [file.name for file in files(package).joinpath(folder).iterdir()]
