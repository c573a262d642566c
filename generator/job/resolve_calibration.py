"""`calibration` of the spec: a file that `dsgen calibrate` wrote, as a `Calibration` of the job's machine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ..findings import Finding, Location
from ..version import __version__
from .codes import CALIBRATION, CALIBRATION_AGE, CALIBRATION_MACHINE, error, warning
from .overrides import PATH as FLAGS
from .records import Calibration, Cluster
from .schema_check import violations
from .source import Source, escape, parse
from .text import UnreadableText, read_path
from .wording import dotted, show

_HINT = "give a file that `dsgen calibrate` wrote"
_LONGEST = 120  # characters of a message of the schema's checker


def resolve_calibration(
    source: Source, value: str, cluster: Cluster, framework: str | None
) -> tuple[Calibration | None, tuple[Finding, ...]]:
    """The calibration, or why it can't be used; with one that can, a warning when it is from another version."""
    where = source.locate("/calibration")
    folder = source.folder if source.folder is not None and where.path != FLAGS else Path()
    try:
        document = parse(read_path(folder / value))
    except UnreadableText as problem:
        message = f"the calibration {show(value)}: {problem.finding.message}"
        return None, (error(CALIBRATION, where, message, _HINT),)
    written_so = isinstance(document.data, dict) and "factors" in document.data and not document.findings
    problems = tuple(_violations(document)) if written_so else (_foreign_file(where, value),)
    if problems:
        return None, problems
    data: Any = document.data
    foreign = _foreign(data, cluster, framework)
    if foreign:
        message = f"the calibration {show(value)} was fitted on {' and '.join(was for was, _ in foreign)}; the job has "
        hint = "calibrate with runs of this machine, or remove the calibration"
        return None, (error(CALIBRATION_MACHINE, where, message + " and ".join(now for _, now in foreign), hint),)
    written = data.get("dsgen_version", __version__)
    if written == __version__:
        return _calibration(data, value), ()
    # The factors multiply constants, which another version may have changed.
    message = f"the calibration {show(value)} was fitted with dsgen {written}; this is {__version__}"
    return _calibration(data, value), (warning(CALIBRATION_AGE, where, message, "run `dsgen calibrate` again"),)


def _foreign_file(where: Location, value: str) -> Finding:
    """That a file is something else; it may be private, so that nothing of it is shown."""
    message = f"the calibration {show(value)} is not a file that `dsgen calibrate` wrote: it has no factors"
    return error(CALIBRATION, where, message, _HINT)


def _calibration(data: Mapping[str, Any], value: str) -> Calibration:
    return Calibration(
        factors=tuple(sorted((name, float(factor)) for name, factor in data["factors"].items())),
        spread=float(data["spread"]),
        runs=len(data.get("runs", ())),
        source=Path(value).name,
        memory_factor=float(data.get("memory_factor", 1.0)),
    )


def _foreign(data: Mapping[str, Any], cluster: Cluster, framework: str | None) -> list[tuple[str, str]]:
    """What the calibration was fitted on and what the job has, where they differ."""
    now = {
        "accelerator": cluster.accelerator.name,
        "network": cluster.network,
        "framework": framework or data["framework"],
    }
    return [(f"{key} {data[key]}", f"{key} {name}") for key, name in now.items() if data[key] != name]


def _violations(document: Source) -> Iterator[Finding]:
    """Every violation of the schema."""
    for pointer, problem in violations(document, "calibration"):
        if problem.validator == "additionalProperties":
            for key in (key for key in problem.instance if key not in problem.schema["properties"]):
                where = document.locate_key(f"{pointer}/{escape(key)}")
                yield error(CALIBRATION, where, f"unknown key {show(key)} in a calibration", f"remove {key}")
        else:
            name = f"`{dotted(pointer)}`: " if pointer else ""
            yield error(CALIBRATION, document.locate(pointer), f"{name}{problem.message[:_LONGEST]}", _HINT)
