"""The reference page of the YAML document, generated from its specification; `docs/reference/yaml.md` is this text."""

from __future__ import annotations

from collections.abc import Iterator

from flowrun.frontend.trees.checking import expectation
from flowrun.frontend.trees.spec import (
    AnyValue,
    KeySpec,
    ListValue,
    MapValue,
    RecordSpec,
    RecordValue,
    TreeValue,
    ValueSpec,
    VariantValue,
    records,
)
from flowrun.frontend.yaml.declaration.document import DOCUMENT

_INTRODUCTION = """# The pipeline document

<!-- Generated from flowrun/frontend/yaml/declaration/document.py; tests/frontend/yaml/test_reference.py says how. Do not edit. -->

A pipeline is one YAML document. Every key is checked: an unknown one is an error with its place and the nearest known key.

- Durations are a number and a unit: `500ms`, `10s`, `1m 30s`, `2h`, `1d`.
- `${NAME}` is filled from `--var NAME=…` or else the environment; `${NAME:-default}` has a default for an unset or empty
  variable; `$${` is a literal `${`. Only values are filled, never keys or comments, and a value cannot change the structure.
- `${secret:file:PATH}` (relative to the document) and `${secret:env:NAME}` are for connector options; they are never printed.
- Anchors, aliases and merge keys (`<<`) work.
- `--set path=value` on the command line replaces a value: `--set settings.parallelism=4`, `--set sources.orders.path=in/`.
- Inside `{ }` and `[ ]` quote values that contain commas or braces: `{amount: "DECIMAL(10,2)", path: "${DATA}/in"}`.
- Names of sources, steps, split branches, late and side outputs share one namespace; sinks have their own.
"""


def reference_markdown() -> str:
    """The whole page."""
    sections = [_INTRODUCTION, *(record_markdown(record) for record in records(DOCUMENT))]
    return "\n".join(sections)


def record_markdown(record: RecordSpec) -> str:
    """A section with the keys of a record."""
    lines = [f"## {_heading(record)}", "", record.doc, ""]
    if record.open_doc:
        lines += [record.open_doc, ""]
    if not record.keys:
        return "\n".join([*lines, "No keys.", ""])
    lines += ["| key | value | default | meaning | since |", "|---|---|---|---|---|"]
    lines += [_row(key) for key in record.keys]
    lines += [""]
    for key in record.keys:
        lines += _variants(key)
    return "\n".join(lines)


def _heading(record: RecordSpec) -> str:
    title = record.title.removeprefix("a ").removeprefix("an ").removeprefix("the ")
    return title[0].upper() + title[1:]


def _row(key: KeySpec) -> str:
    default = "**required**" if key.required else key.default or ""
    cells = (f"`{key.name}`", _kind(key.value), default, key.doc, key.since)
    return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"


def _variants(key: KeySpec) -> Iterator[str]:
    if isinstance(key.value, VariantValue):
        kinds = ", ".join(f"`{tag}` ([{_heading(r)}](#{_anchor(r)}))" for tag, r in key.value.variants)
        yield f"The keys of `{key.name}` depend on its required key `{key.value.tag}`: {kinds}."
        yield ""


def _anchor(record: RecordSpec) -> str:
    return _heading(record).lower().replace(" ", "-").replace("'", "")


def _kind(spec: ValueSpec) -> str:
    match spec:
        case RecordValue():
            link = f"[mapping](#{_anchor(spec.record)})"
            return link if spec.short is None else f"{expectation(spec.short)}, or a {link}"
        case VariantValue():
            return f"mapping by `{spec.tag}`, see below"
        case ListValue():
            item = _kind(spec.item)
            return f"list: {item}" + (" (one may stand alone)" if spec.single else "")
        case MapValue():
            return f"mapping from {expectation(spec.key)} to {_kind(spec.value)}"
        case AnyValue():
            return "any value"
        case TreeValue():
            return spec.what
        case _:
            return expectation(spec)
