"""A stand-in for a training script: writes what torchrun told this process, and its arguments, to a
file.

`STAND_IN_FOLDER` is where; one file `RANK.json` a process.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

NAMES = (
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "GROUP_RANK",
    "MASTER_ADDR",
    "MASTER_PORT",
)
report = {
    **{name: os.environ[name] for name in NAMES},
    "environment": dict(os.environ),
    "arguments": sys.argv[1:],
    "cpus": len(os.sched_getaffinity(0)),
}
Path(os.environ["STAND_IN_FOLDER"], f"{os.environ['RANK']}.json").write_text(json.dumps(report))
