"""What pinned keys of a layout cost, on each screen that says it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import pytest

from tests.cli.running import run

#: Tensor parallelism of eight for a model that needs none.
SPEC: Final = """framework: megatron-lm
model: llama-2-7b
cluster: nvidia/dgx-h100
gpus: 8
training: {sequence_length: 4096, global_batch: 64, precision: bf16}
layout:
  {data: 1, tensor: 8, pipeline: 1, context: 1, sequence_parallel: true, tensor_overlap: false,
   micro_batch: 4, zero_stage: 0, recompute: none, offload: none, virtual_pipeline: 1, expert: 1}
"""
SAYS: Final = "your layout: "


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The spec, in the folder that is the current one."""
    monkeypatch.chdir(tmp_path)
    Path("spec.yaml").write_text(SPEC, encoding="utf-8")
    return "spec.yaml"


def test_every_screen_says_what_pins_cost(spec: str) -> None:
    """The first screen, `plan`, `estimate` and `validate --job` say the same line of a layout."""
    screens = [
        run("generate", spec, "-o", "out").stdout,
        run("plan", spec).stdout,
        run("estimate", spec).stdout,
        run("validate", "out", "--job", spec).stderr,
    ]
    said = {screen.partition(SAYS)[2].partition(")")[0] for screen in screens}
    assert len(said) == 1
    (price,) = said
    own, chosen = (float(part.split()[-2]) for part in price.split(" (")[0].split(";"))
    assert chosen < 0.96 * own
    share = float(price.rpartition("(")[2].removesuffix("%"))
    assert share == pytest.approx(100 * (chosen / own - 1), abs=1)


def test_an_adopted_launch_says_what_its_layout_costs(spec: str) -> None:
    """`init --from` writes the line into the spec, and prints it."""
    run("generate", spec, "-o", "out")
    printed = run("init", "--from", "out", "-o", "adopted.yaml").stdout
    written = Path("adopted.yaml").read_text(encoding="utf-8")
    assert SAYS in printed
    assert f"# {SAYS}" in written
    assert SAYS not in run("plan", spec, "--set", "layout={}").stdout


def test_documents_say_nothing_of_prices(spec: str) -> None:
    """Answers for programs hold plans alone, and take no further search."""
    answer = json.loads(run("validate", spec, "--job", spec, "--format", "json").stdout)
    assert SAYS not in json.dumps(answer)
