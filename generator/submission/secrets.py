"""Secrets in the files of a job; `dsgen.secrets` says for every kind of file what one is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..findings import ERROR, WARNING, Violation
from .submission import Submission


def secrets_of(
    submission: Submission, paths: Iterable[str], reader: str, hint: str
) -> Iterator[Violation]:
    """Return a violation for each secret of these files.

    It is an error where the secret's form tells it, a warning where only its name does.
    """
    for path in sorted(paths):
        text = submission.texts.get(path)
        for secret in text.secrets if text is not None else ():
            if text is not None and secret.sure:
                what = secret.name.strip("-") or secret.what
                severity = ERROR if secret.what else WARNING
                message = f"{what} is written in plain text: {reader}"
                yield Violation(text.locate_offset(secret.at), message, hint, severity=severity)
