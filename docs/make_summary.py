"""Draw docs/summary.svg, the picture of the README: what `dsgen --gpus 1024` prints. Run with `make picture`."""

from __future__ import annotations

import io
import re
from importlib.resources import files
from pathlib import Path

from rich.console import CONSOLE_SVG_FORMAT, Console
from rich.text import Text

import dsgen
from dsgen.cli.answers import report
from dsgen.cli.tables import Prose

WIDTH = 80
# Without the web fonts, so that the picture loads nothing.
FORMAT = re.sub(r"@font-face \{\{.*?\n    \}\}\n", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)


def main() -> None:
    """Plan the built-in job and draw its summary."""
    with files("dsgen.cli").joinpath("default_job.yaml").open(encoding="utf-8") as spec:
        answer = dsgen.search(dsgen.load_job(spec), top=3)
    if isinstance(answer, dsgen.Infeasible):
        raise SystemExit("the built-in job has no plan")
    console = Console(record=True, width=WIDTH, file=io.StringIO(), highlight=False, force_terminal=True)
    for part in report(answer, 3):
        console.print(Prose(part) if isinstance(part, str | Text) else part, markup=False)
    svg = console.export_svg(title="dsgen --gpus 1024", code_format=FORMAT, unique_id="dsgen")
    Path(__file__).with_name("summary.svg").write_text(svg, encoding="utf-8")


if __name__ == "__main__":
    main()
