"""Renew the plotting library that reports carry: `python scripts/echarts.py VERSION`.

Needs npm. Writes the library, its licence and notice as they are published, and which version that
is.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

HOME = Path(__file__).parents[1] / "generator" / "report" / "assets"
#: Files of the package to files of ours.
FILES = {
    "dist/echarts.min.js": "echarts.min.js",
    "LICENSE": "echarts.LICENSE",
    "NOTICE": "echarts.NOTICE",
}


def main(version: str) -> None:
    """Fetch the package of one version and take what is needed."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["npm", "pack", "--json", f"echarts@{version}"]
        (said,) = json.loads(
            subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout
        )
        with tarfile.open(Path(folder) / said["filename"]) as package:
            for source, target in FILES.items():
                member = package.extractfile(f"package/{source}")
                assert member is not None, source
                (HOME / target).write_bytes(member.read())
    facts = {
        "name": "echarts",
        "version": said["version"],
        "license": "Apache-2.0",
        "integrity": said["integrity"],
    }
    (HOME / "echarts.json").write_text(json.dumps(facts, indent=2) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
