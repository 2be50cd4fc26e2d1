"""URIs of object stores, as they are given to pyarrow."""

from __future__ import annotations

GOOGLE_LIMIT_S = 30
"""How long the client of Google Cloud Storage may try again; its own limit is a quarter of an hour, also where there is no network."""


def with_time_limit(uri: str) -> str:
    """A URI with the limit of Google's client, unless it says one itself; others as they are.

    >>> with_time_limit("gs://shop/in?scheme=http"), with_time_limit("gs://shop/in?retry_limit_seconds=5"), with_time_limit("s3://shop")
    ('gs://shop/in?scheme=http&retry_limit_seconds=30', 'gs://shop/in?retry_limit_seconds=5', 's3://shop')
    """
    if not uri.startswith(("gs://", "gcs://")) or "retry_limit_seconds=" in uri:
        return uri
    return f"{uri}{'&' if '?' in uri else '?'}retry_limit_seconds={GOOGLE_LIMIT_S}"
