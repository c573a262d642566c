"""What only newer releases of DeepSpeed refuse is no error where nothing names the release."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dsgen.check.validate import validate
from dsgen.findings import Finding

_BASE: dict[str, Any] = {
    "train_micro_batch_size_per_gpu": 2,
    "gradient_accumulation_steps": 4,
    "gradient_clipping": 1.0,
    "bf16": {"enabled": True},
}
_SUMS = {"data_types": {"grad_accum_dtype": "fp32"}, "zero_optimization": {"stage": 0}}


def _found(folder: Path, config: dict[str, Any], pin: str = "", **flags: Any) -> list[Finding]:
    (folder / "ds_config.json").write_text(json.dumps({**_BASE, **config}))
    if pin:
        (folder / "requirements.txt").write_text(f"deepspeed=={pin}\n")
    found = validate([folder], **flags).findings
    return [finding for finding in found if finding.severity.value != "note"]


@pytest.mark.parametrize(
    ("config", "rule", "since"),
    [
        (_SUMS, "PREC013", "0.18.5"),
        ({"nebula": {"enabled": True}}, "VER001", "0.19.7"),
        ({"bf16": {"enabled": True, "loss_scale": 0}}, "PREC003", "0.17.0"),
    ],
)
def test_it_is_a_warning_that_names_the_release_and_the_pin(
    config: dict[str, Any], rule: str, since: str, tmp_path: Path
) -> None:
    """The warning names the first release that refuses the value, and the hint the pin."""
    (finding,) = _found(tmp_path, config)
    assert (finding.rule, finding.severity.value) == (rule, "warning")
    assert finding.message.endswith(f"so from DeepSpeed {since} on, and no file names a release")
    assert "pin deepspeed<=" in (finding.hint or "")


def test_the_pin_is_said_once_for_all(tmp_path: Path) -> None:
    """Of several such findings the first has the pin that settles all of them."""
    findings = _found(tmp_path, {**_SUMS, "nebula": {"enabled": True}})
    assert ["pin deepspeed<=0.18.4" in (one.hint or "") for one in findings] == [True, False]


def test_a_named_release_decides(tmp_path: Path) -> None:
    """A release that refuses it makes an error that names it; one that accepts it, silence."""
    (finding,) = _found(tmp_path, _SUMS, pin="0.19.8")
    assert finding.severity.value == "error"
    assert finding.message.endswith("judged by DeepSpeed 0.19.8 (requirements.txt:1)")
    assert _found(tmp_path, _SUMS, pin="0.18.4") == []
    (stated,) = _found(tmp_path, _SUMS, deepspeed_version="0.19.8")
    assert stated.severity.value == "error"


@pytest.mark.parametrize(
    "config",
    [
        {"zero_optimization": {"stage": 5}},
        {"zero_optimization": {"stage": 2, "overlap_com": True}},
    ],
)
def test_what_every_release_refuses_is_an_error(config: dict[str, Any], tmp_path: Path) -> None:
    """A value that no release accepts stays an error, and names none."""
    (finding,) = _found(tmp_path, config)
    assert (finding.severity.value, "no file names" in finding.message) == ("error", False)
