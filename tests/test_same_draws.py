"""What the tests draw at random is the same in every run, whatever ran before and whichever process
it runs in.
"""

from __future__ import annotations

import ast
import sys
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import module_from_spec
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

TESTS = Path(__file__).parent

#: Generators that keep to their seed where they have one, and calls that draw from the machine's
#: own randomness.
_WITH_SEED = {"random.Random", "np.random.default_rng"}
_ALWAYS = {"uuid.uuid1", "uuid.uuid4", "os.urandom"}
_MODULES_OF_LUCK = ("random.", "np.random.", "secrets.")


def drawn() -> list[tuple[int, float, str, bytes]]:
    """What a test of this house draws."""
    values = list[tuple[int, float, str, bytes]]()

    @given(st.integers(), st.floats(allow_nan=False), st.text(), st.binary())
    def draws(whole: int, real: float, text: str, octets: bytes) -> None:
        values.append((whole, real, text, octets))

    draws()
    return values


def test_examples_keep_no_memory() -> None:
    """By default examples are derandomized, and none is kept from one run to the next."""
    assert settings.default is not None
    assert settings.default.derandomize
    assert settings.default.database is None


def test_examples_are_the_same_in_every_process(tmp_path: Path) -> None:
    """What is drawn doesn't change with the modules that the process has imported before."""
    before = drawn()
    source = tmp_path / "imported_by_luck.py"
    numbers = ", ".join(str(1000 + number) for number in range(500))
    source.write_text(f"NUMBERS = [{numbers}]\nTEXTS = ['drawn', 'by', 'luck']\n")

    module = module_from_spec(ModuleSpec("imported_by_luck", None, origin=str(source)))
    module.__file__ = str(source)
    SourceFileLoader("imported_by_luck", str(source)).exec_module(module)
    sys.modules["imported_by_luck"] = module
    try:
        assert len(before) > 50
        assert drawn() == before
    finally:
        del sys.modules["imported_by_luck"]


def calls_of_luck(tree: ast.AST) -> list[str]:
    """Calls in a module's source whose outcome no seed decides."""
    calls = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func)
        seeded = name in _WITH_SEED and (node.args or node.keywords)
        drawing = name in _ALWAYS or name.startswith(_MODULES_OF_LUCK)
        if drawing and not seeded and "(" not in name:
            calls.append(f"line {node.lineno}: {ast.unparse(node)}")
    return calls


@pytest.mark.parametrize(
    "source",
    [
        "random.random()",
        "random.Random()",
        "secrets.token_hex(4)",
        "uuid.uuid4()",
        "np.random.default_rng()",
    ],
)
def test_luck_is_seen(source: str) -> None:
    """A call without a seed is noticed, and the same generator with a seed is not."""
    assert calls_of_luck(ast.parse(source))
    assert not calls_of_luck(ast.parse("random.Random(1).random()\nnp.random.default_rng(20)"))


def test_no_test_draws_without_a_seed() -> None:
    """No module of the tests asks for randomness without a seed."""
    lucky = {
        f"{path.relative_to(TESTS)}, {call}"
        for path in TESTS.rglob("*.py")
        for call in calls_of_luck(ast.parse(path.read_text(encoding="utf-8")))
    }
    assert not lucky
