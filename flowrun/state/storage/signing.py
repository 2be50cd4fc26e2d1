"""Signatures over state by a key that only its writers and readers have: who alters state without it is noticed.

The key is the text of the environment variable `FLOWRUN_STATE_KEY`, or the content of the file that `FLOWRUN_STATE_KEY_FILE` names. With a
key everything that is written is signed, and what is read must be signed by it: metadata, which hold a SHA-256 of the footer of each
state file, which holds those of its row groups; notes of stops; logs of commits.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from pathlib import Path

from flowrun.errors import StateError
from flowrun.masking import learn_secret

KEY = "FLOWRUN_STATE_KEY"
KEY_FILE = "FLOWRUN_STATE_KEY_FILE"
_LEAST_BYTES = 16


def state_key() -> bytes | None:
    """The key of this process; None if it has none.

    Raises:
        StateError: its file cannot be read, or it is too short.
    """
    text, path = os.environ.get(KEY), os.environ.get(KEY_FILE)
    if not text and not path:
        return None
    if text:
        key, where = text.encode(), KEY
    else:
        assert path is not None
        where = f"the file '{path}' ({KEY_FILE})"
        try:
            key = Path(path).read_bytes().strip()
        except OSError as error:
            raise StateError(f"cannot read the key of state in {where}: {error.strerror}") from error
    if len(key) < _LEAST_BYTES:
        raise StateError(
            f"the key of state in {where} is too short: {len(key)} bytes, at least {_LEAST_BYTES} are needed",
            hint="make one with: openssl rand -hex 32",
        )
    learn_secret(key.decode("utf-8", "replace"))
    return key


def signature(key: bytes, signed: bytes) -> str:
    """HMAC-SHA256 in hexadecimal digits.

    >>> signature(b"k" * 16, b"text")[:8]
    'f604a91d'
    """
    return hmac.new(key, signed, hashlib.sha256).hexdigest()


def is_signature(key: bytes, signed: bytes, given: str) -> bool:
    """Whether a signature is that of the text; takes the same time whether or not."""
    return hmac.compare_digest(signature(key, signed), given)


def check_signature(key: bytes, signed: bytes, given: str | None, what: str) -> None:
    """Whether `what`, a name for people, is signed with the key.

    Raises:
        StateError: it is not signed, or was altered, or signed with another key.
    """
    if given is None:
        raise StateError(
            f"{what} is not signed, but {KEY} or {KEY_FILE} says that state must be",
            hint="if you trust it, read it without the key; what is written from then on with the key is signed",
        )
    if not is_signature(key, signed, given):
        raise StateError(
            f"the signature of {what} is wrong: it was altered, or signed with another key",
            hint=f"give the key that it was written with ({KEY} or {KEY_FILE}), or use another checkpoint",
        )
