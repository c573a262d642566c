"""Our findings on accelerate configs and accelerate's own way with them agree."""

from __future__ import annotations

from pathlib import Path

import pytest

import dsgen
from benchmarks.agreement_accelerate import compare_all, launch_says
from dsgen.findings import Severity
from dsgen.programs.trainer.rules.accelerate import (
    DISTRIBUTED_TYPES,
    ENVIRONMENTS,
    PRECISIONS,
    TOP_KEYS,
)
from dsgen.programs.trainer.rules.accelerate_deepspeed import KEYS, LAUNCHERS
from tests.case import NAMES, read_case
from tests.needs import needs_transformers


def _is_judged(name: str) -> bool:
    """Return whether the installed accelerate reads a case, which pins no other release."""
    files = read_case(name).good
    return "accelerate.yaml" in files and b"accelerate==" not in files.get("requirements.txt", b"")


CASES = [name for name in NAMES if name[0] in "AH" and _is_judged(name)]
#: Cases that accelerate refuses before it starts anything; the others stop later or never.
REFUSED = {
    "ACC001",
    "ACC001_gone",
    "ACC002",
    "ACC003",
    "ACC003_slip",
    "ACC005",
    "ACC005_alone",
    "ACC007",
    "ACC009",
    "ACC018",
    "HF007",
}
REFUSED |= {"HF013_accelerate", "ACC004", "ACC004_machines", "ACC006"}


@pytest.mark.integration
@needs_transformers
def test_accelerate_and_validate_agree() -> None:
    """Over 80 seeded configs there is no disagreement."""
    counts, unexplained = compare_all(80, seed=5)
    assert unexplained == []
    assert counts["both refuse"] > 10
    assert counts["both take"] > 10


@pytest.mark.integration
@needs_transformers
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", CASES)
def test_cases_fare_with_accelerate_as_they_say(case: str, tmp_path: Path) -> None:
    """A bad case that stops accelerate stops it, every other case goes through, and so do the good
    ones.
    """
    for part in ("bad", "good"):
        config = read_case(case).write(part, tmp_path / part) / "ds_config.json"
        if not config.exists():
            config.write_text('{"zero_optimization": {"stage": 2}}')
    told = launch_says(tmp_path / "bad")
    assert (told is not None) == (case in REFUSED), told
    assert launch_says(tmp_path / "good") is None


@pytest.mark.integration
@needs_transformers
def test_names_are_those_of_the_installed_accelerate() -> None:
    """Keys, types, precisions and launchers are the ones that accelerate has."""
    from accelerate.commands.config.config_args import ClusterConfig
    from accelerate.commands.launch import launch_command_parser
    from accelerate.utils import ComputeEnvironment, DistributedType, PrecisionType
    from accelerate.utils.constants import DEEPSPEED_MULTINODE_LAUNCHERS

    assert set(TOP_KEYS) == {*ClusterConfig.__dataclass_fields__, "fp16", "dynamo_backend"}
    assert set(DISTRIBUTED_TYPES) == {kind.value for kind in DistributedType}
    assert set(ENVIRONMENTS) == {kind.value for kind in ComputeEnvironment}
    assert set(PRECISIONS) == {kind.value for kind in PrecisionType}
    assert list(LAUNCHERS) == DEEPSPEED_MULTINODE_LAUNCHERS
    assert set(KEYS) <= {action.dest for action in launch_command_parser()._actions}


@pytest.mark.parametrize("case", CASES)
def test_good_cases_have_no_error(case: str, tmp_path: Path) -> None:
    """What accelerate accepts causes no error."""
    found = dsgen.validate(read_case(case).write("good", tmp_path))
    assert not [item for item in found if item.severity is Severity.ERROR]
