"""What a run needs beside model and machines: data, tokenizer, folders, and how reliable the machines are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from .records import Data, Output, Reliability, Tokenizer
from .source import Source

_DAY_S: Final = 86400
_GIGA: Final = 10**9

Keys = Mapping[str, Any]


def data_of(source: Source, data: Keys) -> Data:
    """The spec's `data`; weights stay as they were written."""
    written = data.get("path", ())
    if isinstance(written, str):
        path: tuple[str, ...] = (written,)
    else:
        path = tuple(as_text(source, f"/data/path/{index}", value) for index, value in enumerate(written))
    return Data(path=path, split=data.get("split"), tokenizer=Tokenizer(**data.get("tokenizer", {})))


def output_of(output: Keys) -> Output:
    """The spec's `output`."""
    return Output(**{key: whole(value) for key, value in output.items()})


def reliability_of(reliability: Keys) -> Reliability:
    """The spec's `reliability`, in SI units."""

    def scaled(key: str, factor: float) -> float | None:
        value = reliability.get(key)
        return None if value is None else float(value) * factor

    return Reliability(
        storage_bytes_per_s=scaled("storage_gbytes_per_s", _GIGA),
        node_s_between_failures=scaled("node_days_between_failures", _DAY_S),
        restart_s=scaled("restart_minutes", 60),
    )


def whole(value: Any) -> Any:
    """`1e3` is an integer to the schema; to Python it is a float."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def as_text(source: Source, pointer: str, value: str | int | float) -> str:
    """Text as it is; a number as it was written, for `1e-4` and `007` mean more to a script than to us."""
    return value if isinstance(value, str) else source.texts.get(pointer, str(value))
