"""Plain machines, as one record."""

from __future__ import annotations

from typing import Final

from ...submission.record import ProgramRecord

SHELL: Final = ProgramRecord(name="shell", launcher="programs.shell.write:LAUNCHER")
