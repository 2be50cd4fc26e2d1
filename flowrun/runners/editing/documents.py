"""What a YAML text is: a pipeline, tests of pipelines, a project, or something of others, of which nothing is told."""

from __future__ import annotations

import re
from pathlib import Path

from flowrun.frontend.pipeline_tests.declaration import TESTS
from flowrun.frontend.pipeline_tests.finding import SUFFIXES as TEST_SUFFIXES
from flowrun.frontend.project.declaration import DOCUMENT as PROJECT
from flowrun.frontend.project_file import PROJECT_FILE
from flowrun.frontend.trees.spec import RecordValue
from flowrun.frontend.yaml.declaration.document import DOCUMENT as PIPELINE

_KEY = re.compile(r"""^["']?([^\s"'#:{}\[\],-][^\s"'#:{}\[\],]*)["']?\s*:(?=\s|$)""", re.MULTILINE)
_ITEM = re.compile(r"^- ", re.MULTILINE)
_OF_PIPELINES = {"sources", "sinks"}
"""Keys by which a document of others is hardly ever meant."""


def document_of(path: Path, text: str) -> RecordValue | None:
    r"""What the document of a text declares; None: it is not flowrun's.

    Tests and projects are known by the names of their files, pipelines by their keys: a text with `sources` or `sinks`, or one that has
    no other keys than those of pipelines yet.

    >>> document_of(Path("a.yaml"), "name: a\nsteps:\n") is PIPELINE
    True
    >>> document_of(Path("compose.yaml"), "name: a\nservices:\n  sources: {}\n") is None
    True
    """
    if path.name == PROJECT_FILE:
        return PROJECT
    if path.name.endswith(TEST_SUFFIXES):
        return TESTS
    keys = set(_KEY.findall(text))
    is_list = not keys and _ITEM.search(text) is not None
    is_others = not keys <= {key.name for key in PIPELINE.record.keys} and not keys & _OF_PIPELINES
    return None if is_list or is_others else PIPELINE
