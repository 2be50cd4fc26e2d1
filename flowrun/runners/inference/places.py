"""Where data may be that nobody has declared, and who looks at it there."""

from __future__ import annotations

import re

from flowrun.errors import PipelineError
from flowrun.runners.inference.sample import Asked, Sample

FORMS = (
    "PATH", "s3://BUCKET/PATH", "https://HOST/FILE", "kafka://HOST:PORT/TOPIC", "postgresql://USER@HOST/DATABASE/TABLE",
    "FILE.duckdb/TABLE",
)  # fmt: skip
"""The forms of places, for people."""
_SCHEME = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]*):(?=//|postgresql:|duckdb:|sqlite:)")


def sample_of(asked: Asked) -> Sample:
    """A sample of what is at a place.

    Raises:
        ConnectorError: there is nothing there, or it cannot be read.
        PipelineError: the place has no form that is known, or what is there does not say what it is.
        SetupError: a client library is not installed.
    """
    # Each is imported where it is needed: most need client libraries.
    found = _SCHEME.match(asked.place)
    scheme = found[1].lower() if found else ""
    if scheme == "jdbc":
        raise PipelineError.of("a place is no URL of JDBC", f"one of: {', '.join(FORMS)}")
    if asked.changes and scheme not in ("postgresql", "postgres", ""):
        raise PipelineError.of(
            "--changes is for tables of PostgreSQL", "topics with changes are found out by their messages"
        )
    if scheme == "kafka":
        from flowrun.runners.inference.topics import sample_topic

        return sample_topic(asked)
    if scheme in ("postgresql", "postgres"):
        from flowrun.runners.inference.databases import sample_postgres

        return sample_postgres(asked)
    if scheme in ("http", "https"):
        from flowrun.runners.inference.downloads import sample_url

        return sample_url(asked)
    from flowrun.runners.inference.databases import database_file, sample_database_file
    from flowrun.runners.inference.files import sample_files

    if not scheme and (database := database_file(asked.place)) is not None:
        return sample_database_file(asked, *database)
    if asked.changes:
        raise PipelineError.of("--changes is for tables of PostgreSQL", "files with changes: --format debezium-json")
    return sample_files(asked)
