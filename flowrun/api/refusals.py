"""Which errors of files, object stores and lake tables stay until somebody changes something, and which may pass by themselves.

Client libraries of stores tell the reason as text only: pyarrow with the names of Amazon's SDK (`AWS Error ACCESS_DENIED`), the library
below deltalake with those of the protocol (`AccessDenied`, `403 Forbidden`). Credentials that have expired are not among them: a new
client may find newer ones.
"""

from __future__ import annotations

import errno
import re

_OF_SYSTEM = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG})
_OF_STORES = re.compile(
    r"\b(?:ACCESS_?DENIED|NO_?SUCH_?BUCKET|INVALID_?ACCESS_?KEY_?ID|SIGNATURE_?DOES_?NOT_?MATCH|INVALID_?CLIENT_?TOKEN_?ID"
    r"|UNRECOGNIZED_?CLIENT|INVALID_?SIGNATURE|MISSING_?AUTHENTICATION_?TOKEN|AUTHENTICATION_?FAILED|AUTHORIZATION_?FAILURE"
    r"|PERMISSION_?DENIED|UNAUTHENTICATED|401 Unauthorized|403 Forbidden|HTTP status code: 40[13]|(?:response )?code 40[13])\b"
    r"|password authentication failed|certificate verify failed",
    re.IGNORECASE,
)


def retryable_io(error: BaseException, otherwise: bool | None = None) -> bool | None:
    """What `ConnectorError.retryable` should say of a failure of a file or store: False if it was refused for good, else `otherwise`.

    Args:
        error: of the system or a client library; its causes are looked at, too.
        otherwise: of what may pass.

    >>> retryable_io(PermissionError(13, "Permission denied")), retryable_io(OSError(28, "No space left on device"))
    (False, None)
    >>> retryable_io(OSError("When listing objects: AWS Error NO_SUCH_BUCKET during ListObjectsV2 operation"), True)
    False
    """
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        if isinstance(current, OSError) and current.errno in _OF_SYSTEM:
            return False
        if _OF_STORES.search(str(current)) is not None:
            return False
        current = current.__cause__ or current.__context__
    return otherwise
