"""Views of documents answer the same four questions."""

from __future__ import annotations

import pytest

from dsgen.facts.document import YamlDocument, read_yaml
from dsgen.facts.hjson.text import read_json
from dsgen.facts.places import Reader, ValueKind
from dsgen.job.text import text_of
from dsgen.programs.deepspeed.config import DsConfig
from dsgen.programs.launching.hostfile import read_environment_file, read_hostfile
from dsgen.programs.launching.launch_line import sbatch_options
from dsgen.programs.launching.script import CommandLine
from dsgen.programs.megatron.arguments import read_argument_file
from dsgen.programs.shell.reader import read_script
from dsgen.programs.trainer.training_arguments import from_file

_MEGATRON = "--num-layers 8\n--hidden-size 64\n--seq-length 8\n"
_SCRIPT = read_script(text_of("#!/bin/bash\n#SBATCH --nodes=4\n", "job.sbatch"))


@pytest.mark.parametrize(
    ("reader", "name", "value", "kind", "line"),
    [
        (DsConfig(json=read_json(text_of('{\n"a": {"b": 1.5}}', "ds.json"))), "/a/b", 1.5, "float", 2),
        (read_json(text_of('{\n"a": null}', "ds.json")), "/a", None, "null", 2),
        (YamlDocument(source=read_yaml(text_of("a:\n- b\n- true\n", "a.yaml"))), "a/1", True, "bool", 3),
        (from_file("a.yaml", read_yaml(text_of("x: 1\nseed: 7\n", "a.yaml"))), "seed", 7, "int", 2),
        (read_hostfile(text_of("# hosts\nnode slots=8\n", "hostfile")), "node", 8, "int", 2),
        (read_environment_file(text_of("A=1\nB=x\n", ".deepspeed_env")), "B", "x", "str", 2),
        (read_argument_file(text_of(_MEGATRON, "arguments.txt")), "--hidden-size", 64, "int", 2),
        (CommandLine(shell=_SCRIPT, options=sbatch_options(_SCRIPT), program="sbatch"), "--nodes", "4", "str", 2),
    ],
    ids=["config", "json", "yaml", "arguments", "hostfile", "environment", "megatron", "command"],
)
def test_every_view_has_value_presence_type_and_place(
    reader: Reader, name: str, value: object, kind: ValueKind, line: int
) -> None:
    """What is written is found with its type and line; what is not has the default, no type, and a place."""
    assert (reader.value(name, "default"), reader.has(name), reader.kind(name)) == (value, True, kind)
    assert reader.locate(name).line == line
    absent = f"{name}_absent"
    assert (reader.value(absent, "default"), reader.has(absent), reader.kind(absent)) == ("default", False, None)
    assert reader.locate(absent).path == reader.locate(name).path
