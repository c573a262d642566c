"""DeepSpeed's own verdicts on configs: run in an environment with one release, reads and writes
JSON lines.

`PYTHONPATH=FOLDER_WITH_THE_RELEASE:. python -m benchmarks.deepspeed_verdicts WORLD [--old] < texts
> verdicts`
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from dsgen.check.engine import parse, quiet, read


def main() -> None:
    """A line of `{"text": ...}` in, a line of `{"accepted": ..., "error": ...}` out, in the same
    order.
    """
    texts = [json.loads(line)["text"] for line in sys.stdin]
    sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))
    from stand_ins import stand_in_for_the_past  # type: ignore[import-not-found]

    with quiet():
        if "--old" in sys.argv:
            stand_in_for_the_past()
            # It would compile an operator for collectives on CPUs, which nothing here runs.
            import_module("deepspeed.comm.ccl").build_ccl_op = lambda: None  # type: ignore[attr-defined]
        verdicts = [verdict(text, int(sys.argv[1])) for text in texts]
    for answer in verdicts:
        print(json.dumps(answer))


def verdict(text: str, world: int) -> dict[str, Any]:
    """Return what DeepSpeed's parser says of a config, read as it reads files, on `world` ranks."""
    try:
        parse(read(text, strict=False), world)
    except Exception as error:
        return {"accepted": False, "error": f"{type(error).__name__}: {error}"[:300]}
    return {"accepted": True, "error": None}


if __name__ == "__main__":
    main()
