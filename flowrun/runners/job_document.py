"""The text of a running job, for whoever looks at it: what the user wrote, with the values of the command line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from pathlib import Path

from flowrun.core.record import record
from flowrun.runners.places_of_functions import places_of_functions
from flowrun.state.checkpoints import PipelineText

_LANGUAGES = {".sql": "sql", ".py": "python"}


@record
class JobDocument:
    """The text of a pipeline.

    Attributes:
        file: it comes from, for people.
        language: `yaml`, `sql` or `python`.
        text: as it is written, before anything is filled in.
        directory: folder of the file, in which relative paths of functions start.
        working_directory: in which the command was given.
        variables: of the command line; values of secret ones are left out.
        overrides: of the command line.
        withheld: names of the secret ones.
        functions: folders of its Python functions; see `flowrun.runners.places_of_functions`.
    """

    file: str
    language: str
    text: str
    directory: str = ""
    working_directory: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)
    overrides: Mapping[str, str] = field(default_factory=dict)
    withheld: tuple[str, ...] = ()
    functions: tuple[str, ...] = ()


def document_of(kept: PipelineText) -> JobDocument:
    """The document of a text as checkpoints keep it.

    >>> document_of(PipelineText("shop/orders.sql", "SELECT 1", "/shop")).language
    'sql'
    """
    return JobDocument(
        kept.file_name,
        _LANGUAGES.get(Path(kept.file_name).suffix.lower(), "yaml"),
        kept.text,
        kept.directory,
        kept.working_directory,
        kept.variables,
        kept.overrides,
        kept.withheld,
        places_of_functions(kept),
    )
