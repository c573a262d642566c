"""Damaged specs never raise anything but `InvalidJob`."""

from __future__ import annotations

import io
import random
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsgen.findings import InvalidJob
from dsgen.job.load import load_with_findings
from dsgen.job.schema import load_schema
from dsgen.programs.frameworks import FRAMEWORKS

pytestmark = pytest.mark.slow

TEXT = """\
name: job
framework: deepspeed
model: {hidden_size: 1024, num_hidden_layers: 4, num_attention_heads: 16, intermediate_size: 2048,
  vocab_size: 1000}
cluster:
  accelerator: a100-80gb
  accelerators_per_node: 8
  network_gbits_per_s_per_node: 1600
gpus: 16
training:
  sequence_length: 2048
  global_batch: {tokens: 65536}
  duration: &d {samples: 1e6, epochs: 2}
layout: {tensor: 2, zero_stage: 1, sequence_parallel: true, offload: "none"}
memory: {headroom: 0.08}
launch:
  target: slurm
  arguments: [--lr, 1e-4]
  environment: {NCCL_DEBUG: INFO}
  time_limit: 2-00:00:00
  slurm: {partition: gpu, exclusive: true, signal_seconds: 60}
"""
PIECES = (
    *(
        "\t",
        "\n",
        "  ",
        "- ",
        ": ",
        "? ",
        "&a ",
        "*a",
        "*d",
        "<<: *d",
        "!!int ",
        "!x ",
        "{",
        "}",
        "[",
        "]",
        "'",
        '"',
        "|",
    ),
    *(
        "#",
        "%",
        "@",
        "`",
        "---\n",
        "...\n",
        "null",
        "~",
        ".nan",
        ".inf",
        "-1",
        "1e400",
        "9" * 40,
        "true",
        "0x",
        "\\",
    ),
    *(
        "\0",
        "\x1b",
        "\ufeff",
        "\ud800",
        "\u2028",
        "é",
        "\N{GRINNING FACE}",
        "$(rm -rf ~)",
        "../../..",
        "\x85",
    ),
)

WORDS = (
    "null",
    "true",
    "0",
    "-1",
    "1e400",
    ".nan",
    "1e18",
    "0.1",
    "[]",
    "{}",
    "{tokens: 1}",
    "''",
    '"\\n"',
    "*d",
)


def is_answered(source: Any, overrides: dict[str, object]) -> bool:
    """Ask whether a spec loads, or raises `InvalidJob` with findings of its own rules, and nothing
    else.
    """
    try:
        load_with_findings(source, FRAMEWORKS, overrides=overrides)
    except InvalidJob as invalid:
        told = all(
            finding.message and finding.rule.startswith("SPEC") for finding in invalid.findings
        )
        return bool(invalid.findings) and told
    return True


def cut(text: str, rng: random.Random) -> str:
    """`text` with a piece cut, copied or inserted anywhere."""
    start = rng.randrange(len(text) + 1)
    end = min(len(text), start + rng.randint(0, 30))
    return text[:start] + rng.choice([rng.choice(PIECES), "", text[end : end + 20]]) + text[end:]


def swap(text: str, rng: random.Random) -> str:
    """`text` with a word in another's place: well-formed more often than not."""
    words = re.split(r"([\w.+-]+)", text)
    places = range(1, len(words), 2)
    words[rng.choice(places)] = rng.choice([words[rng.choice(places)], *WORDS])
    return "".join(words)


def mutate(text: str, rng: random.Random) -> str:
    """`text` with one to four damages."""
    for _ in range(rng.randint(1, 4)):
        text = rng.choice([cut, swap, swap, swap])(text, rng)
    return text


def test_damaged_text_is_told_not_raised() -> None:
    """A thousand random damages of a whole spec load or raise `InvalidJob`."""
    rng = random.Random(20_26)
    load_with_findings(io.StringIO(TEXT), FRAMEWORKS)
    for _ in range(1000):
        assert is_answered(io.StringIO(mutate(TEXT, rng)), {})


scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(PIECES)
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner)
)


def _paths(node: dict[str, Any], prefix: str = "") -> list[str]:
    schema = load_schema()
    found = []
    for key, child in node.get("properties", {}).items():
        target = schema["$defs"][child["$ref"].rpartition("/")[2]] if "$ref" in child else child
        found += [f"{prefix}{key}", *_paths(target, f"{prefix}{key}.")]
    for branch in ("then",):
        inner = node.get(branch, {})
        target = schema["$defs"][inner["$ref"].rpartition("/")[2]] if "$ref" in inner else inner
        found += _paths(target, prefix) if inner else []
    return found


PATHS = _paths(load_schema())


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(st.sampled_from(PATHS), values, min_size=1, max_size=3))
def test_any_value_at_any_key_is_told_not_raised(overrides: dict[str, object]) -> None:
    """Whatever is put at any key of the schema, the spec loads or raises `InvalidJob`."""
    assert is_answered(io.StringIO(TEXT), overrides)
