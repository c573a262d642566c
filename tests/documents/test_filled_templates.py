"""DeepSpeed configs that scripts make of templates by sed."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsgen.check.filled_templates import filled_templates
from dsgen.job.text import text_of
from dsgen.programs.shell.script import read_script

TEMPLATE = '{"train_batch_size": GBSIZE,\n "zero_optimization": {"stage": STAGE}}\n'


def filled(script: str, folder: Path) -> list[tuple[str | None, object]]:
    """The target and data of each config that a script in `folder` makes of its template."""
    (folder / "ds_TEMPLATE.json").write_text(TEMPLATE)
    shell = read_script(text_of(script, str(folder / "train.sh")))
    return [(config.target, config.json.data) for config in filled_templates(shell)]


def test_a_chain_of_substitutions_makes_a_config(tmp_path: Path) -> None:
    """The values of all commands of a pipeline are in the config that its last one writes."""
    script = "S=2\nsed 's/GBSIZE/64/' ds_TEMPLATE.json \\\n  | sed -e \"s|STAGE|$S|g\" > ds_$S.json\n"
    expected = {"train_batch_size": 64, "zero_optimization": {"stage": 2}}
    assert filled(script, tmp_path) == [("ds_2.json", expected)]


@pytest.mark.parametrize(
    "script",
    [
        "sed 's/GBSIZE/64/' ds_TEMPLATE.json | sed \"s/STAGE/$S/\" > ds.json\n",
        "sed 's/GBSIZE/64/' ds_TEMPLATE.json | sed 's/STAGE/2/' > $CONFIG\n",
        "sed 's/GBSIZE/64/' ds_TEMPLATE.json | sed 's/STAGE/2/'\n",
        "sed 's/GB.*/64/' ds_TEMPLATE.json | sed 's/STAGE/2/' > ds.json\n",
        "sed 's/GBSIZE/64/' other_TEMPLATE.json | sed 's/STAGE/2/' > ds.json\n",
        "sed -i 's/GBSIZE/64/' ds_TEMPLATE.json\n",
        "sed 's/GBSIZE/64/' ds_TEMPLATE.json | sed 's/STAGE",
    ],
)
def test_what_is_not_known_makes_none(script: str, tmp_path: Path) -> None:
    """A value, name or template that can't be known, or a a pattern, leaves the template to the script."""
    assert filled(script, tmp_path) == []
