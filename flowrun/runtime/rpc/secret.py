"""The secret that the processes of a cluster share: who knows it may have them run code."""

from __future__ import annotations

import hmac
import os
import secrets
import stat
from pathlib import Path

from flowrun.core.record import record
from flowrun.errors import ClusterError
from flowrun.masking import learn_secret

_SHORTEST_BYTES = 16
_LONGEST_BYTES = 4096
SHARED_SECRET, TOKEN = "the shared secret", "the token"
"""What a file holds, for people. The token is that of the REST API."""
_WHO_MAKES_IT = {
    SHARED_SECRET: "`flowrun jobmanager` makes it when it starts: start that first, or copy the file from its machine (--secret-file)",
    TOKEN: "the process that serves the REST API makes it when it starts with --token-file: copy the file from its machine",
}


@record
class SharedSecret:
    """Bytes that are never sent and never shown; `text_of_new_secret` makes some. The empty one is none at all: anybody knows it."""

    value: bytes

    def __repr__(self) -> str:
        return "SharedSecret(***)" if self.value else "SharedSecret(none)"

    def __str__(self) -> str:
        return repr(self)

    def __bool__(self) -> bool:
        return bool(self.value)

    def sign(self, *parts: bytes) -> bytes:
        """32 bytes that only who knows the secret can make: HMAC-SHA256 (RFC 2104) of the parts, which must not be ambiguous."""
        return hmac.digest(self.value, b"".join(parts), "sha256")


NO_SECRET = SharedSecret(b"")


def text_of_new_secret() -> str:
    """A secret from the system's random numbers, as text for a file or a variable of the environment."""
    text = secrets.token_hex(32)
    learn_secret(text)
    return text


def secret_of_text(text: str, place: str, what: str = SHARED_SECRET) -> SharedSecret:
    """The secret that somebody wrote down; it is masked wherever this process says something. Space around it does not count.

    Raises:
        ClusterError: it is too short to be one; `place` says where it is from.
    """
    value = text.strip().encode()
    if not _SHORTEST_BYTES <= len(value) <= _LONGEST_BYTES:
        raise ClusterError(
            f"{what} of {place} has {len(value)} bytes; it must have {_SHORTEST_BYTES} to {_LONGEST_BYTES}",
            hint="`openssl rand -hex 32` makes one",
        )
    learn_secret(text.strip())
    return SharedSecret(value)


def read_secret(path: Path, what: str = SHARED_SECRET) -> SharedSecret:
    """The secret in a file.

    Raises:
        ClusterError: it cannot be read, other users can read it, or it is too short.
    """
    try:
        mode = os.stat(path).st_mode
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        hint = _WHO_MAKES_IT[what] if isinstance(error, FileNotFoundError) else None
        raise ClusterError(f"cannot read {what} in {path}: {reason}", hint=hint) from error
    if stat.S_IMODE(mode) & 0o077:
        raise ClusterError(f"other users may read {what} in {path}", hint=f"`chmod 600 {path}`")
    return secret_of_text(text, str(path), what)


def read_or_create_secret(path: Path, what: str = SHARED_SECRET) -> SharedSecret:
    """The secret in a file, which is made, for this user only, if it is not there. Processes that do so at once get the same one.

    Raises:
        ClusterError: as for `read_secret`, or the file cannot be made.
    """
    if not path.exists():
        new = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
                file.write(text_of_new_secret() + "\n")
            try:
                os.link(new, path)  # fails if somebody was faster
            except FileExistsError:
                pass
            finally:
                os.unlink(new)
        except OSError as error:
            raise ClusterError(
                f"cannot make {what} {path}: {error.strerror or error}",
                hint="name a file in a folder that you may write to",
            ) from error
    return read_secret(path, what)
