"""What can be wrong with a job spec as text, shape and names. Ids are never reused."""

from __future__ import annotations

from functools import partial
from typing import Final

from ..findings import ERROR, WARNING, Finding, Location
from ..rule import Rule, rule_of_reader

_spec = partial(rule_of_reader, checks="spec", source="the job spec's own form")

UNREADABLE: Final = _spec(
    "SPEC001",
    "The spec is a readable, non-empty UTF-8 text file.",
    "There is nothing to plan; with a typing error in a script, another job would be planned.",
    "give the path of a text file with at least model, cluster, gpus and training.global_batch",
)
SYNTAX: Final = _spec(
    "SPEC002",
    "The spec is well-formed YAML 1.2 or JSON.",
    "The rest of the file can't be trusted once its syntax is broken.",
    "correct the line shown; quote text with a colon or a bracket",
)
DUPLICATE_KEY: Final = _spec(
    "SPEC003", "A mapping has each key once.", "The second value would silently win.", "keep one of the two"
)
UNSUPPORTED_YAML: Final = _spec(
    "SPEC004",
    "The spec is one document of plain data: no merge keys, no application tags.",
    "Merge keys and tags mean different things to different readers.",
    "write the values out",
)
TOO_LARGE: Final = _spec(
    "SPEC005",
    "The spec stays within the limits of size, nesting and aliases.",
    "A file of a few lines can expand to gigabytes of aliases.",
    "write the values out; a job spec has about 50",
)
UNKNOWN_KEY: Final = _spec(
    "SPEC006",
    "Every key is one that dsgen reads.",
    "A misspelled key would be ignored, and the job would run with the default.",
    "use the key that the hint names; `dsgen schema job` lists all",
)
MISSING_KEY: Final = _spec(
    "SPEC007", "Every required key is present.", "The plan would rest on a guess.", "add the key, as in the hint"
)
WRONG_TYPE: Final = _spec(
    "SPEC008",
    "Every value has the type of its key.",
    "Programs read a number in quotes, or `yes` for true, in different ways.",
    "write a value of the type named",
)
WRONG_VALUE: Final = _spec(
    "SPEC009",
    "Every value is one of the key's values, or in its range.",
    "The job would fail when a program reads the value, hours later.",
    "use one of the values named",
)
CONFLICTING_KEYS: Final = _spec(
    "SPEC010",
    "Keys that set the same thing in different ways are not combined.",
    "One of the two would silently win.",
    "keep one of them",
)
UNKNOWN_NAME: Final = _spec(
    "SPEC011",
    "Models, clusters and accelerators are in the catalog.",
    "The plan would be for another model or machine.",
    "use the name in the hint, or describe it inline; `dsgen catalog` lists all names",
)
PARTIAL_SEQUENCES: Final = _spec(
    "SPEC012",
    "A global batch in tokens is a whole number of sequences.",
    "The batch would silently be rounded to another size.",
    "use one of the two token counts that the hint names",
)
UNUSABLE_MODEL: Final = _spec(
    "SPEC013",
    "The model's configuration is of a transformer that dsgen knows.",
    "Sizes would be estimated for another model.",
    "add the keys that the message names, or use a config.json as published",
)
FORBIDDEN_CHARACTER: Final = _spec(
    "SPEC014",
    "Text has no control characters, and names and paths have no line breaks.",
    "A control character or line break could end a comment or a command in a launch script.",
    "write plain text on one line",
)
ENVIRONMENT_NAME: Final = _spec(
    "SPEC015",
    "The name of an environment variable is a shell identifier.",
    "The shell would stop at the export, or run it as a command.",
    "use letters, digits and underscores, with no digit first",
)
SECRET: Final = _spec(
    "SPEC016",
    "Secrets are not written into job specs or launch files.",
    "The secret would be in files that are shared and committed.",
    "remove it, and set it where the job is submitted",
    severity=WARNING,
    when="silent",
)
OVERRIDE: Final = _spec(
    "SPEC017",
    "An override names a key that can be set.",
    "The override would be lost.",
    "name a key, as in --set layout.zero_stage=1",
)
CALIBRATION: Final = _spec(
    "SPEC018",
    "A calibration is a file as dsgen calibrate writes it.",
    "The plan would rest on factors that were misread, or on none.",
    "use the file that dsgen calibrate wrote, unchanged",
)
CALIBRATION_MACHINE: Final = _spec(
    "SPEC019",
    "A calibration was fitted on the job's accelerator, network and framework.",
    "Step times would be estimated with the network and kernels of another machine.",
    "run dsgen calibrate on runs of the job's own machine",
)
CALIBRATION_AGE: Final = _spec(
    "SPEC020",
    "A calibration was fitted with this version of dsgen.",
    "Factors multiply constants, which may differ in another version.",
    "run dsgen calibrate with the same runs and this version",
    severity=WARNING,
    when="silent",
)


def error(rule: Rule, where: Location, message: str, hint: str | None = None) -> Finding:
    """A finding that stops the job."""
    return rule.at(where, message, hint, ERROR)


def warning(rule: Rule, where: Location, message: str, hint: str | None = None) -> Finding:
    """A finding that doesn't stop the job."""
    return rule.at(where, message, hint, WARNING)
