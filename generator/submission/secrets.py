"""Secrets in the files of a job. What a secret is, `dsgen.secrets` decides for all files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..findings import NOTE, WARNING, Severity, Violation
from .submission import Submission

#: What it opens lies beside it or is published, as data sets are that no crawler is to find.
_OF_AN_ARCHIVE = "a password of an archive"
#: What a command asks for itself where nothing hands it in.
_OF_A_COMMAND = "a password of a command"
_ASKED_FOR = "let the command ask for it, or read it from a file that only you can read"


def secrets_of(
    submission: Submission,
    paths: Iterable[str],
    who_reads_it: str,
    hint: str,
    by_name: Severity = WARNING,
) -> Iterator[Violation]:
    """A violation for each secret in these files.

    It is a warning, as the job runs well with it, and of the severity `by_name` where only the name
    beside the value tells. One of an archive is a note. `who_reads_it` ends the message: who sees
    the secret there.
    """
    for path in sorted(paths):
        text = submission.texts.get(path)
        if text is None:
            continue
        for secret in text.secrets:
            if not secret.sure:
                continue
            what = secret.name.strip("-") or secret.what
            severity = WARNING if secret.what else by_name
            if secret.what == _OF_AN_ARCHIVE:
                severity = NOTE
            message = f"{what} is written in plain text: {who_reads_it}"
            fitting = _ASKED_FOR if secret.what == _OF_A_COMMAND else hint
            yield Violation(text.locate_offset(secret.at), message, fitting, severity=severity)
