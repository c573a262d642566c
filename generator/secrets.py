"""What a secret is, and text without secrets: one judge for planning, checking and all output."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from enum import IntEnum
from functools import cache, lru_cache
from typing import Any, Final, NamedTuple

from .dataclass import dataclass
from .numerals import is_whole, whole
from .patterns import lazy_pattern
from .resources import read_text

#: The words of a name: separated, or in camel case; of other scripts all that is together.
_WORD: Final = lazy_pattern(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+|[^\W0-9_A-Za-z]+")
_LONGEST: Final = 100  # characters of a name


class Likeness(IntEnum):
    """The likelihood that a name's value is a secret."""

    NONE = 0
    SOME = 1  #: where the value looks like one
    SURE = 2


@cache
def patterns() -> Any:
    """Names and forms of secrets, with where they are from.

    A form has the parts that a text with such a secret has one of (`needs`), others that it has one
    of (`also`), a part of the pattern that is found faster (`sign`), how many characters a word
    with it has at least (`word`), where it ends if not with the pattern (`ends`), and whether it is
    base64 of a secret (`decoded`).
    """
    from_file = json.loads(read_text(__package__, "secrets.json"))
    return {**from_file, "placeholders": frozenset(from_file["placeholders"])}


@lru_cache(maxsize=4096)
def likeness(name: str) -> Likeness:
    """How likely a variable of this name holds a secret.

    **Source**: `secrets.json`, which names where its words are from.
    """
    words = _words(name)
    if not words or words[0] in patterns()["settings"]:
        return Likeness.NONE
    if any(f" {' '.join(words)}".endswith(f" {phrase}") for phrase in patterns()["phrases"]):
        return Likeness.SURE
    last, before = words[-1], words[-2] if len(words) > 1 else ""
    if last in patterns()["words"]:
        return Likeness.SURE
    for head, known in patterns()["pairs"].items():
        if last == head:
            if before in patterns()["ordinary"].get(head, ()):
                return Likeness.NONE
            if before in known or (before and head in patterns()["whole"]):
                return Likeness.SURE
            return Likeness.SOME if head in patterns()["maybe"] else Likeness.NONE
        # without a separator: APIKEY, hftoken
        if last.endswith(head) and last.removesuffix(head) in known:
            return Likeness.SURE
    if last.endswith(("password", "passwd", "passphrase", "credentials", "connectionstring")):
        return Likeness.SURE
    if last in patterns()["maybe"]:
        return Likeness.SOME
    return Likeness.NONE


def _words(name: str) -> list[str]:
    """The words of a name in small letters, without a number or a word like PROD at its end."""
    name = name[-_LONGEST:]
    if not name.isascii():
        import unicodedata  # here, to save start-up time

        chars = unicodedata.normalize("NFKD", name)
        name = "".join(char for char in chars if not unicodedata.combining(char))
    words = [word.lower() for word in _WORD.findall(name)]
    while len(words) > 1 and (is_whole(words[-1]) or words[-1] in patterns()["tails"]):
        words.pop()
    return words


#: A variable, a part of a template or of a program, a comment, an alias or tag of YAML, a scheme of
#: HTTP.
_REFERENCE: Final = lazy_pattern(
    r"\$[\w({'\"@*?!-].*|`.*|%\w+%|<[^<>]*>|\$?\{\{.*|[\[{(].*|\*\w+|\W|@\w+\(.*"
    r"|#(?:\s.*)?|!(?:Ref|Sub|GetAtt|Join|ImportValue|reference)\b.*"
    r"|(?:os\.|env\.|secrets\.|args\.|vault:|azureml:|id=).*|(?i:bearer|basic|token|write|read)",
    re.DOTALL,
)
_PATH: Final = lazy_pattern(
    r"(?:[~/]|\.{1,2}/|file:|[A-Za-z]:\\).*|[a-z][a-z0-9+.-]*://.*|(?:[\w.+-]{1,200}/)*[\w.+-]*"
    r"\.(?:json|txt|pem|key|crt|cer|env|ya?ml|toml|ini|cfg|conf|pub|asc|gpg|sh|py|netrc)",
    re.DOTALL,
)
_FILLER: Final = lazy_pattern(r"[xX*._<>?#-]+|(.)\1*")  # one character again and again
_NUMBER: Final = lazy_pattern(
    r"[+-]?(?:0x[0-9A-Fa-f]{1,8}|[0-9]{1,15}(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?[KMGBT]?)"
)
_SHORT_WORD: Final = lazy_pattern(r"[A-Za-z_.:-]{1,8}")
#: Words of a language.
_PLAIN: Final = lazy_pattern(rf"{_SHORT_WORD.pattern}|[a-z]+(?:[_.-][a-z]+)*[_.-]?[0-9]{{0,2}}")
#: Names of files, of several or in folders, where a password may be meant.
_FILES: Final = lazy_pattern(r"[\w.@:{},-]*[*?/][\w.@:{},*?/-]*")
#: The name of a stored secret: `--secret HF_TOKEN=joes_HF_TOKEN`; an example's key: `token-abc123`.
_EXAMPLE: Final = lazy_pattern(
    r"([A-Za-z_]\w*)=(?:\w+[_-])?\1|(?i:token|key|secret|password)[_-]?(?:abc)?[0-9]{0,3}"
)
#: The first value of several: `value1,key2=value2,key3=value3`.
_ASSIGNED: Final = lazy_pattern(r"([^\s,=]*)(?:,[A-Za-z_][\w.-]*=[^\s,]*)+")
_SHORTEST, _SHORTEST_SURE = 6, 8  # characters of what is a secret by its looks
_LONG: Final = 16  # characters of a text that is judged by whether it looks random
_NO_WORD: Final = lazy_pattern(r"[^a-z0-9]+")
_TOKEN: Final = lazy_pattern(r"[A-Za-z0-9+/=_-]+")


def holds(name: str, value: str, *, sure: bool = False, variable: bool = False) -> bool:
    """Whether a value is a secret that no file may hold, by the name of its variable or key.

    With `sure`, as a stranger's files are judged: a value that may be an example or a word isn't
    taken for one. With `variable`, as a spec's variables are judged: after KEY or AUTH, any text
    but a short word.
    """
    kind = likeness(name)
    text = value.strip()
    several = _ASSIGNED.fullmatch(text)
    if several:
        text = several[1]
    # A word of the name hides nothing: `# WANDB_API_KEY: wandb reads it from ~/.netrc`.
    is_of_name = text.lower() in (name.lower(), *_NO_WORD.split(name.lower()))
    if kind is Likeness.NONE or _says_where(text) or is_of_name:
        return False
    if sure:
        return _is_surely_secret(text, kind)
    if _NUMBER.fullmatch(text):  # a password may be a number
        return kind is Likeness.SURE and "pass" in name.lower() and len(text) > 3
    if kind is Likeness.SURE:
        return True
    if len(text) < _SHORTEST or (_SHORT_WORD if variable else _PLAIN).fullmatch(text):
        return False
    return _FILES.fullmatch(text) is None or _is_random(text)


def _is_surely_secret(text: str, kind: Likeness) -> bool:
    """Return whether a value is a secret, and neither an example nor a word."""
    # A local server's may be `api-key-qwen3`.
    if "$" in text or _EXAMPLE.fullmatch(text) or _PLAIN.fullmatch(text):
        return False
    if kind is not Likeness.SURE:
        return _is_random(text)
    has_both = re.search(r"[0-9]", text) is not None and re.search(r"[A-Za-z]", text) is not None
    return has_both and len(text) >= _SHORTEST_SURE and re.search(r"\s", text) is None


def _says_where(text: str) -> bool:
    """Return whether a value is empty, a variable, a path, or a placeholder."""
    if not text or _REFERENCE.fullmatch(text) or _PATH.fullmatch(text):
        return True
    if len(text) > 2 and _FILLER.fullmatch(text):
        return True
    words = _NO_WORD.split(text.lower())
    return "xxxx" in text.lower() or not patterns()["placeholders"].isdisjoint(words)


def _is_random(value: str) -> bool:
    """Whether text looks random: it has digits, and letters and digits alternate often."""
    if len(value) < _LONG or _TOKEN.fullmatch(value) is None:
        return False
    changes = len(re.findall(r"[0-9](?=[A-Za-z])|[A-Za-z](?=[0-9])|[a-z](?=[A-Z])", value))
    digits = sum(map(is_whole, value))
    return digits > 1 and changes >= len(value) // 5


_ROOTS: Final = (
    "token",
    "key",
    "pass",
    "pwd",
    "pw",
    "secret",
    "cred",
    "auth",
    "bearer",
    "pat",
    "sas",
    "jwt",
    "dsn",
    "cookie",
    "string",
    "str",
)
#: A quote as it is, escaped once or more, or as URLs and HTML have it.
_QUOTE: Final = r"""\\{0,15}["']|%22|&quot;"""
#: Up to the quote that closes as the first opens, or to the end of the line.
_QUOTED: Final = rf"(?P<quote>{_QUOTE})(?P<quoted>(?:''|(?!(?<!\\)(?P=quote))[^\n]){{0,4096}})"
_BARE: Final = r"""(?P<bare>(?:[^\s"';|<>()`,}\]&]|[,&](?=[^\s&"'])){1,4096})"""
#: Of a shell's array, which is named before it: `PASSWORDS[$user]=`.
_SUBSCRIPT: Final = r"""\[["']?\$\{?\w{1,60}\}?["']?\]"""
#: Backwards: what is before its variable; and what is behind it where it is set or has a default.
_IN_SUBSCRIPT: Final = lazy_pattern(r"""\{?\$["']?\[""")
_ENDS_SUBSCRIPT: Final = lazy_pattern(r"""["']?\](?:=|:[-=])""")
#: Between a name and its value: `=` and its like; for options also a space, a comma, or the next
#: item of a list.
_SET: Final = (
    rf"(?:{_SUBSCRIPT}|(?:{_QUOTE})?\]?)[ \t]{{0,8}}(?::[-=]|=>|=(?!=)|:|%3[AaDd])[ \t]{{0,8}}"
)
_NEXT: Final = (
    rf"(?:{_QUOTE})?[ \t]{{0,8}}"
    r"(?:,\s{0,40}|\\?\r?\n[ \t]{0,40}(?:-[ \t]{1,8})?|[ \t])[ \t]{0,8}"
)
_NAME: Final = lazy_pattern(r"[\w.-]*")
_LONGEST_NAME: Final = 80  # characters before a value that are looked at for its name
#: What a name and its value follow with a space between them: `setenv`, `aws configure set`.
_SETENV: Final = lazy_pattern(
    r"(?:\b(?:setenv|setx|ENV)"
    r"|\bconfig(?:ure)?(?:[ \t]{1,4}(?:set|--?[\w-]{1,20}(?:[= \t][\w.]{1,30})?)){1,4})[ \t]{1,8}\Z"
)
_CODE: Final = lazy_pattern(
    r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+|[A-Za-z_]\w*_(?:token|key|pass|password|passwd|pwd|secret)",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Secret:
    """A secret in a text: characters `start` up to `end`."""

    start: int
    end: int
    name: str  #: of its variable, option or key; empty where only its form tells
    what: str  #: `a token of Hugging Face`; empty where only its name tells
    at: int  #: where its name starts
    sure: bool = True  #: whether a stranger's file is judged by it

    def value_in(self, text: str) -> str:
        return text[self.start : self.end]


def find(text: str) -> tuple[Secret, ...]:
    """The secrets in a text, in order, none within another."""
    if len(text) <= 200:
        return _find_in_line(text)
    return _find_in_excerpt(text) if len(text) <= 1_000_000 else _find(text)


def _find(text: str) -> tuple[Secret, ...]:
    secrets = (*_by_form(text), *_by_name(text))
    kept: list[Secret] = []
    for secret in sorted(secrets, key=lambda secret: (secret.start, -secret.end)):
        if not kept or secret.start >= kept[-1].end:
            kept.append(secret)
        elif secret.end > kept[-1].end or (secret.what and not kept[-1].what):
            kept[-1] = _united(kept[-1], secret)
    return tuple(kept)


def _united(first: Secret, second: Secret) -> Secret:
    """Two secrets that overlap, as one: by the name of the one, and with the form of either."""
    return replace(
        first,
        end=max(first.end, second.end),
        name=first.name or second.name,
        what=first.what or second.what,
        at=min(first.at, second.at),
        sure=first.sure or second.sure,
    )


#: Of messages, which are the same for many files.
_find_in_line: Final = lru_cache(maxsize=2048)(_find)
#: Of a long line, which is the excerpt of every finding in it.
_find_in_excerpt: Final = lru_cache(maxsize=8)(_find)


class _Kind(NamedTuple):
    """A kind of token, by what follows its beginning."""

    what: str
    run: re.Pattern[str]  #: of its alphabet
    least: int  #: characters of the shortest
    usual: int  #: characters as it is made
    named: bool  #: whether names begin as it does


@cache
def _tokens() -> dict[str, _Kind]:
    """Beginnings of tokens: the kind of each."""
    return {
        prefix: _Kind(
            what=kind["what"],
            run=re.compile(f"[{kind['alphabet']}]*"),
            least=kind["least"],
            usual=len(re.sub(r"[0-9]+", lambda size: "x" * whole(size[0]), kind["usual"])),
            named=kind.get("named", False),
        )
        for kind in patterns()["tokens"]
        for prefix in kind["prefixes"]
    }


@cache
def _prefixes() -> dict[str, list[str]]:
    """Beginnings of tokens by their first three characters, which each has."""
    by_first = dict[str, list[str]]()
    for prefix in _tokens():
        by_first.setdefault(prefix[:3], []).append(prefix)
    return by_first


@cache
def _shortest_token() -> int:
    """Characters that every token has."""
    return min(len(prefix) + max(kind.least, _LEAST) for prefix, kind in _tokens().items())


@cache
def _needed() -> frozenset[str]:
    """The parts that forms need, in small letters, of which most texts have none."""
    parts = set[str]()
    for form in patterns()["forms"]:
        parts.update(form["needs"], form.get("also", ()))
    return frozenset(parts)


_BASE64: Final = lazy_pattern(r"[A-Za-z0-9+/]+")
_ENCODED: Final = 64  # characters of base64 in which the beginning of a token stands by chance
_LEAST: Final = 10  #: characters of a token after its beginning
#: The first characters of what may be a token.
_FIRST: Final = lazy_pattern(r"(?<![A-Za-z0-9])(?=([A-Za-z0-9][\w/~.-]{2}))")


def _by_form(text: str) -> Iterator[Secret]:
    """The secrets that are told by what they look like."""
    small = text.lower()
    parts = {part for part in _needed() if part in small}
    words = set(text.split())
    longest = max(map(len, words), default=0)
    for form in patterns()["forms"]:
        if longest >= form.get("word", 0) and _may_have(text, form, parts):
            yield from _of_block(text, form) if "ends" in form else _of_form(text, form)
    yield from _tokens_in(text, words)


def _tokens_in(text: str, words: Iterable[str]) -> Iterator[Secret]:
    """The tokens in a text. They are in long words, of which most texts have few."""
    long_words = [word for word in words if len(word) >= _shortest_token()]
    firsts = set(_FIRST.findall("\n".join(long_words)))
    prefixes = [
        prefix for first in firsts for prefix in _prefixes().get(first, ()) if prefix in text
    ]
    if not prefixes:
        return
    prefixes.sort(key=lambda prefix: (-len(prefix), prefix))  # the longest that fits counts
    beginning = "|".join(map(re.escape, prefixes))
    rest = rf"(?:[\w+/=~-]|\.(?=[\w-])){{{_LEAST},5000}}"
    for match in re.finditer(rf"(?<![A-Za-z0-9])({beginning})({rest})", text):
        kind, start = _tokens()[match[1]], match.start()
        before = text[max(0, start - _ENCODED) : start]
        is_encoded = len(before) == _ENCODED and _BASE64.fullmatch(before) is not None
        if not is_encoded and _is_token(match[2], kind):
            yield Secret(start=start, end=match.end(), name="", what=kind.what, at=start)


def _may_have(text: str, form: Mapping[str, Any], parts: set[str]) -> bool:
    """Return whether a text that has these parts may have a secret of a form."""
    if parts.isdisjoint(form["needs"]):
        return False
    if "also" in form and parts.isdisjoint(form["also"]):
        return False
    return "sign" not in form or re.search(form["sign"], text) is not None


#: Words of a language with dashes between them, as in an example: `glpat-your-token-goes-here`.
_WORDS_ALONE: Final = lazy_pattern(r"[a-z]{1,20}(?:[._-]+[a-z]{1,20})*[._-]*")
#: A part of a name: `checkpoints`, `Llama3`, `CamelCase`, `FP16`, `8x7B`, `lr1e5`.
_PART: Final = (
    r"(?:[A-Za-z]?[a-z]{1,20}(?:[A-Z][a-z]{2,20}){0,6}[A-Z]{0,4}[0-9]{0,4}[a-z]?"
    r"|[A-Z]{1,20}[a-z]?[0-9]{0,4}|[0-9]{1,8}(?:x[0-9]{1,4})?[A-Za-z]{0,2}"
    r"|(?:[a-z]{1,4}[0-9]{1,4}){2,3}[a-z]{0,2}|(?:[0-9]{1,4}[a-z]{1,4}){2,3})"
)
_NAMED: Final = lazy_pattern(rf"[._-]*{_PART}(?:[._-]+{_PART})*[._-]*")
_FEW = 4  #: different characters, of filler such as `xxxxxxxx`


def _is_token(rest: str, kind: _Kind) -> bool:
    """Return whether what follows a token's beginning makes it one.

    It is long enough in its alphabet, and neither words alone nor filler; of random ones with 20
    characters, one in 10 million is words. Where names begin as tokens do, what has another length
    than the usual must not look like a name either.
    """
    match = kind.run.match(rest)
    run = match[0] if match else ""
    if len(run) < kind.least or len(set(run)) <= _FEW or _WORDS_ALONE.fullmatch(run):
        return False
    return not kind.named or len(run) == kind.usual or _NAMED.fullmatch(run) is None


def _of_form(text: str, form: Mapping[str, Any]) -> Iterator[Secret]:
    for match in re.finditer(form["pattern"], text):
        group = match.lastindex or 0
        value = match[group]
        if form.get("decoded"):
            is_secret = _holds_secret(value)
        else:
            is_secret = group == 0 or not _is_variable(value)
        if is_secret:
            start, end = match.span(group)
            yield Secret(start=start, end=end, name="", what=form["what"], at=start)


def _holds_secret(value: str) -> bool:
    """Return whether a secret is in base64."""
    import base64  # here, to save start-up time

    plain = value.rstrip("=").replace("-", "+").replace("_", "/")
    text = base64.b64decode(plain[: len(plain) // 4 * 4]).decode("utf-8", errors="replace")
    return bool(find(text))


def _of_block(text: str, form: Mapping[str, Any]) -> Iterator[Secret]:
    """The secrets of a form that has an end of its own, as a key in PEM has."""
    position, pattern = 0, re.compile(form["pattern"])
    last_end = text.rfind(form["ends"])
    while match := pattern.search(text, position):
        start, stop = match.start(), match.end() + _OF_CUT_BLOCK
        if last_end >= match.end():
            stop = text.find("\n", text.find(form["ends"], match.end()))
        position = len(text) if stop < 0 else min(stop, len(text))
        yield Secret(start=start, end=position, name="", what=form["what"], at=start)


#: Characters of a block from its beginning, where its end is missing.
_OF_CUT_BLOCK: Final = 8192
_CONSTANT: Final = lazy_pattern(r"[A-Z]+(?:_[A-Z]+)+")


_NO_PASSWORD: Final = frozenset({"password", "pass", "passwd", "token", "pw", "pwd"})


def _is_variable(value: str) -> bool:
    """Whether a variable, or a note that a secret belongs here, stands in a secret's place."""
    if value.lstrip("\\").startswith(("$", "%", "{", "<", "[")) or "${" in value:
        return True
    if value.strip("*x.X") == "" or value.lower() in _NO_PASSWORD:
        return True
    # The name of one, as of the variable that holds it: `https://user:GITHUB_KEY@github.com`.
    return _CONSTANT.fullmatch(value) is not None and likeness(value) is not Likeness.NONE


@cache
def _of_names() -> tuple[str, ...]:
    """Parts of names of secrets: each such name has one of them."""
    words = patterns()["words"]
    others = (word for word in words if not any(root in word for root in _ROOTS))
    return (*_ROOTS, *others)


@cache
def _of_ascii_names() -> tuple[str, ...]:
    return tuple(filter(str.isascii, _of_names()))


@lru_cache(maxsize=256)
def _words_of_names(words: tuple[str, ...]) -> re.Pattern[str]:
    """One of these words of a secret's name."""
    # one set is searched fast
    firsts = "".join({letter for word in words for letter in (word[0], word[0].upper())})
    rest = "|".join(f"(?<={word[0]}){word[1:]}" for word in sorted(words, reverse=True))
    return re.compile(rf"[{firsts}](?i:{rest})")


#: The rest of a secret's name, and the value after it.
_NAMED_VALUE: Final = lazy_pattern(
    rf"(?P<tail>[\w.-]{{0,24}}?)(?:(?P<set>{_SET})|(?P<next>{_NEXT}))(?:{_QUOTED}|{_BARE})",
    re.IGNORECASE,
)


def _by_name(text: str) -> Iterator[Secret]:
    """The secrets that are told by the name before them."""
    small = text.lower()
    names = _of_ascii_names() if text.isascii() else _of_names()
    words = tuple(word for word in names if word in small)  # a text has few of them
    if not words:
        return
    next_word, position = _words_of_names(words).search, 0
    while word := next_word(text, position):
        position = word.start() + 1
        match = _NAMED_VALUE.match(text, word.end())
        if match is None:
            continue
        backwards = text[max(0, word.start() - _LONGEST_NAME) : word.start()][::-1]
        before = _NAME.match(backwards)
        begin = word.start() - (before.end() if before else 0)
        is_set = match["set"] is not None
        name = text[begin : match.start("set" if is_set else "next")]
        secret = _named(text, match, name, begin)
        is_array = is_set and match["set"].startswith("[")
        is_subscript = (
            is_set
            and _ENDS_SUBSCRIPT.match(match["set"])
            and _IN_SUBSCRIPT.match(backwards, before.end() if before else 0)
        )
        if is_subscript and secret is not None:
            # Of `DIRS[$token]=` the array's name says what the values are.
            secret = secret if _is_random(secret.value_in(text)) else None
        if secret is not None:
            position = secret.end
            yield secret
        else:  # the variable in an array's subscript may be the name of a secret, too
            position = match.end("set") if is_set and not is_array else word.end()


def _named(text: str, match: re.Match[str], name: str, begin: int) -> Secret | None:
    """The secret that a match is, by the name before it."""
    if not likeness(name):
        return None
    is_option, bare = name.startswith("-"), match["bare"]
    is_next = match["next"] is not None  # a space is between name and value, or a comma
    if is_next and not is_option and not _SETENV.search(text, max(0, begin - 80), begin):
        return None
    start, end = match.span("bare" if bare is not None else "quoted")
    if bare is not None:
        end = _end_of_line(text, begin, start, end, match["set"] or "")
        is_call = text[end : end + 1] == "("
        is_code = is_call or _CODE.fullmatch(text, start, end) is not None
        if bare[0] in "?+" or (is_code and not is_option):
            return None
        # the next option, or the name of the next value
        if is_next and (bare[0] == "-" or bare[-1] in ":="):
            return None
    value, plain = text[start:end], name.strip("-.")
    if not holds(plain, value):
        return None
    is_sure = holds(plain, value, sure=True)
    return Secret(start=start, end=end, name=name, what="", at=begin, sure=is_sure)


def _end_of_line(text: str, begin: int, start: int, end: int, between: str) -> int:
    """Return where a bare value ends: in YAML it may have spaces."""
    before = text[max(0, begin - 200) : begin]  # not the whole line, which may be the whole file
    is_first_on_line = not before.rpartition("\n")[2].strip(" \t-")
    if between.strip() != ":" or not is_first_on_line:
        return end
    stop = text.find("\n", end)
    rest = text[end : len(text) if stop < 0 else stop]
    value = rest.split(" #")[0].rstrip()
    return end + len(value)


_BEGIN: Final = 8  # characters of a secret by which one that is cut short is known
#: The end of a line, and its escape in a value that is one line, whatever quotes are around it.
_LINE_END: Final = lazy_pattern(r"[\r\n\x0b\x0c\x1c-\x1e\x85\u2028\u2029]|\\{1,8}[nr]")
_VISIBLE: Final = lazy_pattern("[^\r\n\x85\u2028\u2029]")


def mask(text: str, secrets: Iterable[Secret] | None = None) -> str:
    """The text with asterisks for its secrets, of the same length: places stay what they are."""
    secrets = find(text) if secrets is None else secrets
    parts, position = list[str](), 0
    for secret in secrets:
        parts += [text[position : secret.start], _VISIBLE.sub("*", secret.value_in(text))]
        position = secret.end
    return "".join((*parts, text[position:]))


def mask_sure(text: str) -> str:
    """The same for our own sentences, where `secret: it` is none."""
    return mask(text, [secret for secret in find(text) if secret.sure])


class Hider:
    """Masks secrets that are known by value, whole or cut short, and those that a text shows."""

    def __init__(self, values: Iterable[str]) -> None:
        forms = {form for value in values for form in _written(value)}
        self._values = sorted(forms, key=len, reverse=True)
        self._lengths = {min(len(value), _BEGIN) for value in self._values}

    def __bool__(self) -> bool:
        return bool(self._values)

    def __call__(self, text: str) -> str:
        """The text without the secrets."""
        values = self._values
        if len(values) > 100:  # which are not each looked for in each text
            parts = {
                text[at : at + size] for size in self._lengths for at in range(len(text) - size + 1)
            }
            values = [value for value in values if value[:_BEGIN] in parts]
        for value in values:  # those that are whole first: others may begin as they do
            if len(value) >= _BEGIN:
                text = text.replace(value, "***")
        for value in values:
            text = _without(text, value)
        return text


def _written(value: str) -> Iterable[str]:
    """A value as messages may write it."""
    value = value.strip()
    if len(value) < 4:  # it may be part of ordinary words
        return ()
    lines = (line for line in _LINE_END.split(value) if len(line) >= 2 * _BEGIN)
    return value, repr(value)[1:-1], json.dumps(value)[1:-1], *lines


def _without(text: str, value: str) -> str:
    """The text without a secret, also where it is cut short."""
    begin, position = value[:_BEGIN], 0
    while (at := text.find(begin, position)) >= 0:
        end = at + len(begin)
        while end < len(text) and end - at < len(value) and text[end] == value[end - at]:
            end += 1
        # A short one may be a part of an ordinary word.
        is_in_word = text[at - 1 : at].isalnum() or text[end : end + 1].isalnum()
        if len(value) >= _BEGIN or not is_in_word:
            text = f"{text[:at]}***{text[end:]}"
        position = at + 3
    return text
