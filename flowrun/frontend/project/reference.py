"""The reference page of `flowrun.yaml`, generated from its declaration; `docs/reference/project.md` is this text."""

from __future__ import annotations

from flowrun.frontend.project.declaration import ENVIRONMENT, PROJECT
from flowrun.frontend.yaml.declaration.reference import record_markdown

_INTRODUCTION = """# The project document

<!-- Generated from flowrun/frontend/project/declaration.py; tests/test_reference_pages.py says how. Do not edit. -->

`flowrun.yaml` says what the pipelines of a folder share; [projects](../projects.md) has an example. Every key is checked: an unknown one
is an error with its place and the nearest known key. The keys of [settings](yaml.md#settings) and [sources](yaml.md#source) are those of
pipelines. `${NAME}` and `${secret:…}` may stand in the values of `settings`, `variables`, `environments` and `sources`; secret files
are looked up from the folder of `flowrun.yaml`.
"""


def reference_markdown() -> str:
    """The whole page."""
    text = "\n".join([_INTRODUCTION, record_markdown(PROJECT), record_markdown(ENVIRONMENT)])
    for heading in ("settings", "source"):
        text = text.replace(f"(#{heading})", f"(yaml.md#{heading})")
    return text
