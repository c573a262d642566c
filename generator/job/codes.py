"""The ids of what can be wrong with a job spec as text, shape and names. Ids are never reused."""

from __future__ import annotations

from typing import Final

from ..findings import Finding, Location, Severity

UNREADABLE: Final = "SPEC001"
SYNTAX: Final = "SPEC002"
DUPLICATE_KEY: Final = "SPEC003"
UNSUPPORTED_YAML: Final = "SPEC004"
TOO_LARGE: Final = "SPEC005"
UNKNOWN_KEY: Final = "SPEC006"
MISSING_KEY: Final = "SPEC007"
WRONG_TYPE: Final = "SPEC008"
WRONG_VALUE: Final = "SPEC009"
CONFLICTING_KEYS: Final = "SPEC010"
UNKNOWN_NAME: Final = "SPEC011"
PARTIAL_SEQUENCES: Final = "SPEC012"
UNUSABLE_MODEL: Final = "SPEC013"
FORBIDDEN_CHARACTER: Final = "SPEC014"
ENVIRONMENT_NAME: Final = "SPEC015"
SECRET: Final = "SPEC016"
OVERRIDE: Final = "SPEC017"
CALIBRATION: Final = "SPEC018"
CALIBRATION_MACHINE: Final = "SPEC019"
CALIBRATION_AGE: Final = "SPEC020"

TITLES: Final[dict[str, str]] = {
    UNREADABLE: "The spec is a readable, non-empty UTF-8 text file.",
    SYNTAX: "The spec is well-formed YAML 1.2 or JSON.",
    DUPLICATE_KEY: "A mapping has each key once.",
    UNSUPPORTED_YAML: "The spec is one document of plain data: no merge keys, no application tags.",
    TOO_LARGE: "The spec stays within the limits of size, nesting and aliases.",
    UNKNOWN_KEY: "Every key is one that dsgen reads.",
    MISSING_KEY: "Every required key is there.",
    WRONG_TYPE: "Every value has the type of its key.",
    WRONG_VALUE: "Every value is one of the key's values, or in its range.",
    CONFLICTING_KEYS: "Keys that say the same thing in different ways are not given together.",
    UNKNOWN_NAME: "Models, clusters and accelerators are in the catalog.",
    PARTIAL_SEQUENCES: "A global batch in tokens makes whole sequences.",
    UNUSABLE_MODEL: "The model's configuration describes a transformer that dsgen knows.",
    FORBIDDEN_CHARACTER: "Text has no control characters, and names and paths have no line breaks.",
    ENVIRONMENT_NAME: "The name of an environment variable is a shell identifier.",
    SECRET: "Secrets are not written into job specs or launch files.",
    OVERRIDE: "An override names a key that can be set.",
    CALIBRATION: "A calibration is a file as dsgen calibrate writes it.",
    CALIBRATION_MACHINE: "A calibration was fitted on the job's accelerator, network and framework.",
    CALIBRATION_AGE: "A calibration was fitted with this version of dsgen.",
}


def error(rule: str, where: Location, message: str, hint: str | None = None) -> Finding:
    """A finding that stops the job."""
    return Finding(rule=rule, severity=Severity.ERROR, where=where, message=message, hint=hint)


def warning(rule: str, where: Location, message: str, hint: str | None = None) -> Finding:
    """A finding that doesn't stop the job."""
    return Finding(rule=rule, severity=Severity.WARNING, where=where, message=message, hint=hint)
