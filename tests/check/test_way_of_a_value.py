"""The way of a value from the command to its finding is short."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import FrameType

from click.testing import CliRunner

from dsgen.cli import commands
from dsgen.findings import Violation

#: Of the package, from the command's own function to the one that makes the violation.
MOST_FRAMES = 14


def frames_of(frame: FrameType | None) -> list[str]:
    """The functions of the package that wait for one, outermost first."""
    found: list[str] = []
    while frame is not None:
        path = Path(frame.f_code.co_filename)
        if "click" not in path.parts:
            found.append(f"{path.parent.name}/{path.name}: {frame.f_code.co_name}")
        frame = frame.f_back
    return found[::-1]


def test_a_value_reaches_its_finding_in_few_frames(tmp_path: Path) -> None:
    """Between `dsgen validate` and the violation of a value of a DeepSpeed config lie 14 frames,
    those two included.
    """
    path, ways = tmp_path / "ds_config.json", list[list[str]]()
    path.write_text(json.dumps({"train_batch_size": 8, "zero_optimization": {"stage": 7}}))

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code is Violation.__init__.__code__:
            ways.append(frames_of(frame.f_back))

    sys.setprofile(note)
    try:
        CliRunner().invoke(commands, ["validate", str(path)])
    finally:
        sys.setprofile(None)

    # older releases are asked the same again, where the files name none
    first = [way for way in ways if not any("by_release" in frame for frame in way)]
    to_the_value = [way for way in first if any("of_model" in frame for frame in way)]
    entry = "cli/validate.py: validate"
    lengths = {len(way) - way.index(entry) for way in to_the_value}
    assert lengths
    assert max(lengths) <= MOST_FRAMES, to_the_value
