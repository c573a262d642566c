"""Values: which may be a secret, which only say where one is."""

from __future__ import annotations

import re
from typing import Final

from .names import Likeness, likeness, patterns

#: A variable, a part of a template or of a program, a comment, an alias or tag of YAML, a scheme of HTTP.
_REFERENCE: Final = re.compile(
    r"\$[\w({'\"@*?!-].*|`.*|%\w+%|<[^<>]*>|\$?\{\{.*|[\[{(].*|\*\w+|\W|@\w+\(.*"
    r"|#(?:\s.*)?|!(?:Ref|Sub|GetAtt|Join|ImportValue|reference)\b.*"
    r"|(?:os\.|env\.|secrets\.|args\.|vault:|azureml:|id=).*|(?i:bearer|basic|token|write|read)",
    re.DOTALL,
)
_PATH: Final = re.compile(
    r"(?:[~/]|\.{1,2}/|file:|[A-Za-z]:\\).*|[a-z][a-z0-9+.-]*://.*|(?:[\w.+-]{1,200}/)*[\w.+-]*"
    r"\.(?:json|txt|pem|key|crt|cer|env|ya?ml|toml|ini|cfg|conf|pub|asc|gpg|sh|py|netrc)",
    re.DOTALL,
)
_FILLER: Final = re.compile(r"[xX*._<>?#-]+|(.)\1*")  # one character again and again
_NUMBER: Final = re.compile(r"[+-]?(?:0x[0-9A-Fa-f]{1,8}|\d{1,15}(?:\.\d*)?(?:[eE][+-]?\d+)?[KMGBT]?)")
_SHORT_WORD: Final = re.compile(r"[A-Za-z_.:-]{1,8}")
#: Words of a language.
_PLAIN: Final = re.compile(rf"{_SHORT_WORD.pattern}|[a-z]+(?:[_.-][a-z]+)*[0-9]{{0,2}}")
#: The name of a stored secret: `--secret HF_TOKEN=joes_HF_TOKEN`; an example's key: `token-abc123`.
_NAMED: Final = re.compile(r"([A-Za-z_]\w*)=(?:\w+[_-])?\1|(?i:token|key|secret|password)[_-]?(?:abc)?\d{0,3}")
_SHORTEST: Final = 6  # characters of what is a secret by its looks
_SHORTEST_SURE: Final = 8
_LONG: Final = 16
_NO_WORD: Final = re.compile(r"[^a-z0-9]+")
_TOKEN: Final = re.compile(r"[A-Za-z0-9+/=_-]+")


def holds(name: str, value: str, *, sure: bool = False, variable: bool = False) -> bool:
    """Whether a value is a secret that no file may hold, by the name of its variable, option or key.

    With `sure`, as a stranger's files are judged: a value that may be an example or a word isn't taken for one.
    With `variable`, as a spec's variables are judged: after KEY or AUTH, any text but a short word.
    """
    kind = likeness(name)
    text = value.strip()
    if kind is Likeness.NONE or _says_where(text) or text.lower() == name.lower():
        return False
    if sure:
        if "$" in text or _NAMED.fullmatch(text):
            return False
        return (_looks_random if kind is Likeness.SURE else _is_random)(text)
    if _NUMBER.fullmatch(text):  # a password may be a number
        return kind is Likeness.SURE and "pass" in name.lower() and len(text) > 3
    plain = _SHORT_WORD if variable else _PLAIN
    return kind is Likeness.SURE or (len(text) >= _SHORTEST and not plain.fullmatch(text))


def _says_where(text: str) -> bool:
    """Whether a value is empty, a variable, a path, or a placeholder."""
    if not text or _REFERENCE.fullmatch(text) or _PATH.fullmatch(text):
        return True
    if len(text) > 2 and _FILLER.fullmatch(text):
        return True
    words = _NO_WORD.split(text.lower())
    return "xxxx" in text.lower() or not patterns()["placeholders"].isdisjoint(words)


def _looks_random(value: str) -> bool:
    """Whether a value is long, without spaces, and neither a number nor a word of a language."""
    mixed = re.search(r"\d", value) is not None and re.search(r"[A-Za-z]", value) is not None
    return mixed and len(value) >= _SHORTEST_SURE and re.search(r"\s", value) is None


def _is_random(value: str) -> bool:
    """Whether a value has nothing of a word: there are digits, and its letters and digits change often."""
    changes = len(re.findall(r"\d(?=[A-Za-z])|[A-Za-z](?=\d)|[a-z](?=[A-Z])", value))
    digits = sum(char.isdigit() for char in value)
    return len(value) >= _LONG and digits > 1 and _TOKEN.fullmatch(value) is not None and changes >= len(value) // 5
