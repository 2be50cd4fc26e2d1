"""The secrets that this process knows, and texts without them: whatever is said, logged or stored passes through `masked`.

Secrets are values of `${secret:…}`, of `--secret-var`, of options that are declared secret, and passwords in URIs. They are known to the
whole process, as texts of all its parts leave it by the same doors: standard output and error, logs, the control endpoint, files.
"""

from __future__ import annotations

import difflib
import json
import re
import threading
from contextlib import suppress
from urllib.parse import quote, unquote

MASK = "***"
"""What stands for a secret."""

_SHORT = 4
"""Shorter secrets are masked only where they stand alone: `ab` would be found in half of all words."""
_LONG_LINE = 12
_TELLING = ("password", "passphrase", "passwd", "secret")
_CREDENTIALS = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*://[^/@:\s]*:([^/@\s]+)@")
_SECRET_PARAMETER = re.compile(
    r"[?&][^=&]*(?:secret|password|token|signature|access_key|sas)[^=&]*=([^&\s]+)", re.IGNORECASE
)


class _Secrets:
    """The values, and the one pattern that finds them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.values: set[str] = set()
        self.pattern: re.Pattern[str] | None = None

    def add(self, value: str) -> None:
        with self._lock:
            in_json = (json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1])
            lines = (
                line for line in value.splitlines() if len(line) >= _LONG_LINE
            )  # as logs show a key of several lines
            forms = (value, *lines, *in_json, repr(value)[1:-1], quote(value, ""))
            self.values.update(form for form in forms if form.strip())
            # One that contains another is masked whole.
            longest_first = sorted(self.values, key=lambda text: (-len(text), text))
            self.pattern = re.compile("|".join(map(_form, longest_first)))

    def clear(self) -> None:
        with self._lock:
            self.values.clear()
            self.pattern = None


_secrets = _Secrets()


def learn_secret(value: str) -> None:
    """Mask a value from now on, also as it is written in JSON, in Python and in URIs. Thread-safe; blank values are no secrets."""
    if value.strip() and value not in _secrets.values:
        _secrets.add(value)


def learn_secrets_of_uri(text: str) -> None:
    """Mask the password and the secret parameters of a URI, if the text is one.

    >>> learn_secrets_of_uri("s3://key:pAss+w0rd@bucket/x?token=t0ken123")
    >>> masked("cannot open s3://key:pAss+w0rd@bucket/x?token=t0ken123")
    'cannot open s3://key:***@bucket/x?token=***'
    >>> forget_secrets()
    """
    for found in (*_CREDENTIALS.findall(text), *_SECRET_PARAMETER.findall(text)):
        learn_secret(found)
        learn_secret(unquote(found))


def names_secret(name: str) -> bool:
    """Whether the name of an option says that its value is a secret, also if it is misspelt or one that nobody knows.

    >>> [names_secret(n) for n in ("properties.sasl.passwrod", "sasl.oauthbearer.client.secret", "properties.sasl.username")]
    [True, True, False]
    """
    words = re.split(r"[^a-z]+", name.casefold())
    return any(any(w in word for w in _TELLING) or _looks_like(word, _TELLING[0]) for word in words)


def _looks_like(word: str, known: str) -> bool:
    return difflib.SequenceMatcher(None, word, known).ratio() >= 0.8


def has_credentials(text: str) -> bool:
    """Whether a text holds a URI with a password or a secret parameter.

    >>> has_credentials("https://me:pw@host/x"), has_credentials("https://host/x?token=abc"), has_credentials("https://me@host:80/x")
    (True, True, False)
    """
    return _CREDENTIALS.search(text) is not None or _SECRET_PARAMETER.search(text) is not None


def masked(text: str) -> str:
    """The text with `***` for every secret.

    >>> learn_secret("hunter2")
    >>> masked("the password hunter2 is wrong"), holds_secret("hunter2!"), holds_secret("hunter")
    ('the password *** is wrong', True, False)
    >>> forget_secrets()
    """
    pattern = _secrets.pattern
    return text if pattern is None else pattern.sub(MASK, text)


def masked_line(line: str, start: int, stop: int) -> tuple[str, int, int]:
    """A line of a user's text without the secrets that are known, and without what it calls a secret itself.

    The latter is for texts that are wrong, so that nobody has learned their secrets. It is masked here only: `password` may be a column.

    Args:
        line: one line of SQL or YAML.
        start: where something in it begins, in code points.
        stop: where that ends.

    Returns:
        The line, and where the same begins and ends in it.

    >>> masked_line("'user' = 'me', 'password' = 'hunter2', 'port' = 'x'", 39, 45)
    ("'user' = 'me', 'password' = '***', 'port' = 'x'", 35, 41)
    """
    pattern = _secrets.pattern
    known = [] if pattern is None else [found.span() for found in pattern.finditer(line)]
    shown: list[str] = []
    length = done = 0
    places = [start, stop]
    for first, last in sorted([*known, *named_secrets(line)]):
        if first < done:  # one within another
            continue
        for i, place in enumerate((start, stop)):
            if done <= place <= first:
                places[i] = length + place - done
            elif first < place < last:
                places[i] = length + first - done + (len(MASK) if i else 0)
        shown += [line[done:first], MASK]
        length += first - done + len(MASK)
        done = last
    for i, place in enumerate((start, stop)):
        if place >= done:
            places[i] = length + place - done
    return "".join([*shown, line[done:]]), places[0], places[1]


def named_secrets(line: str) -> list[tuple[int, int]]:
    """Where the values of options stand whose names tell of a secret: `'password' = '…'` in SQL, `password: …` in YAML.

    >>> named_secrets("'a' = 'b', 'password' = 'c'"), named_secrets("{token: abc, b: 1}"), named_secrets("password: ${secret:X}")
    ([(25, 26)], [(8, 11)], [])
    """
    found: list[tuple[int, int]] = []
    for match in (*_SQL_OPTION.finditer(line), *_YAML_OPTION.finditer(line)):
        group = next(i for i in range(2, match.re.groups + 1) if match[i] is not None)
        first, last = match.span(group)
        if match.re is _YAML_OPTION and group == 4 and "{" not in line[:first]:
            last = len(line.rstrip())  # a plain value in block style
        if first < last and _NAMES.search(match[1]) is not None and _NO_SECRET.match(line, first) is None:
            found.append((first, last))
    return found


_NAMES = re.compile(
    r"pass(?:word|phrase|wd|wrod)|secret|token|credential|jaas|authorization|user-info|(?:api|access|private|account)[-_.]?key|key\.pem"
    r"|keystore\.key|ssl\.key$",
    re.IGNORECASE,
)
_NO_SECRET = re.compile(
    r"\$\{|(?:BIGINT|INT|INTEGER|SMALLINT|TINYINT|STRING|VARCHAR|CHAR|BYTES|VARBINARY|BINARY|BOOLEAN|DOUBLE|FLOAT|DECIMAL|DATE|TIME"
    r"|TIMESTAMP\w*|ARRAY|MAP|ROW)\b"
)
"""How the reference to a secret begins, and the type of a column that is called like one."""
_SQL_OPTION = re.compile(r"'([^']*)'\s*=\s*(?:'((?:[^']|'')*)(?:'|$)|([^\s,')]+))")
_YAML_OPTION = re.compile(
    r"(?:^|[\s{,])[\"']?([\w.#-]+)[\"']?\s*:\s+(?:\"([^\"]*)(?:\"|$)|'([^']*)(?:'|$)|([^,}\s\"'][^,}]*))"
)


def masked_json(value: object) -> object:
    """A JSON value with `***` for every secret in its texts."""
    if _secrets.pattern is None:
        return value
    if isinstance(value, str):
        return masked(value)
    if isinstance(value, dict):
        return {masked(k) if isinstance(k, str) else k: masked_json(v) for k, v in value.items()}
    return [masked_json(v) for v in value] if isinstance(value, list | tuple) else value


class MaskedError(Exception):
    """Stands for an exception of somebody else whose text holds a secret and cannot be changed; says its kind and its masked text."""


def mask_exception(error: BaseException) -> None:
    """Take the secrets out of an exception, and out of those that it came from: their texts, arguments and notes.

    Python shows all of that in a traceback. An exception whose text cannot be changed gives way to a `MaskedError`.
    """
    if _secrets.pattern is None:
        return
    seen: set[int] = set()
    waiting = [error]
    while waiting:
        current = waiting.pop()
        if id(current) in seen:
            continue
        seen.add(id(current))
        _mask_text(current)
        for link in ("__cause__", "__context__"):
            origin = getattr(current, link)
            if origin is None:
                continue
            _mask_text(origin)
            if holds_secret(str(origin)) or holds_secret(repr(origin)):
                stand_in = MaskedError(f"{type(origin).__name__}: {masked(str(origin))}")
                stand_in.__cause__, stand_in.__context__ = origin.__cause__, origin.__context__
                stand_in.__suppress_context__ = origin.__suppress_context__
                shown = current.__suppress_context__
                setattr(current, link, stand_in.with_traceback(origin.__traceback__))
                current.__suppress_context__ = shown  # setting a cause sets it
                origin = stand_in
            waiting.append(origin)
        if isinstance(current, BaseExceptionGroup):
            waiting += current.exceptions


def _mask_text(error: BaseException) -> None:
    """Mask what an exception lets be changed."""
    error.args = tuple(masked(a) if isinstance(a, str) else a for a in error.args)
    if hasattr(error, "__notes__"):
        error.__notes__ = [masked(note) for note in error.__notes__]
    for name in (*_TEXTS, *getattr(error, "__dict__", ())):
        value = getattr(error, name, None)
        if isinstance(value, str) and name != "__notes__":
            with suppress(AttributeError, TypeError):  # it is read-only
                setattr(error, name, masked(value))


_TEXTS = ("filename", "filename2", "strerror", "msg", "doc", "text", "reason")
"""What built-in exceptions keep beside their arguments."""


def is_secret(value: str) -> bool:
    """Whether a value is one of the secrets, or holds one."""
    return value in _secrets.values or holds_secret(value)


def knows_secrets() -> bool:
    """Whether this process knows any secret, so that there is something to mask."""
    return _secrets.pattern is not None


def holds_secret(text: str) -> bool:
    """Whether `masked` would change the text."""
    pattern = _secrets.pattern
    return pattern is not None and pattern.search(text) is not None


def forget_secrets() -> None:
    """Mask nothing any more (for tests, which share a process)."""
    _secrets.clear()


def _form(text: str) -> str:
    escaped = re.escape(text)
    return escaped if len(text) >= _SHORT else rf"(?<!\w){escaped}(?!\w)"
