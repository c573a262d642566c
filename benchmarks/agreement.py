"""Compare `dsgen validate` with the programs that read what it checks: `python -m
benchmarks.agreement`.

Each comparison is a process of its own; names choose some: `python -m benchmarks.agreement slurm`.
The one with the Megatrons wants a checkout of theirs: `python -m benchmarks.agreement_megatron
TREE`.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

PROGRAMS: Final = ("deepspeed", "slurm", "azureml", "huggingface", "accelerate")


def main() -> int:
    """Print each comparison; 1 when any of them disagrees."""
    chosen = sys.argv[1:] or PROGRAMS
    unknown = [name for name in chosen if name not in PROGRAMS]
    if unknown:
        print(f"{', '.join(unknown)}: choose from {', '.join(PROGRAMS)}", file=sys.stderr)
        return 2
    failed = False
    for name in chosen:
        print(f"== {name}", flush=True)
        command = [sys.executable, "-m", f"benchmarks.agreement_{name}"]
        failed |= bool(
            subprocess.run(command, cwd=Path(__file__).parents[1], check=False).returncode
        )
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
