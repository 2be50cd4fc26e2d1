"""The declaration of sources and sinks."""

from __future__ import annotations

from flowrun.frontend.trees.spec import (
    ChoiceValue,
    DurationValue,
    KeySpec,
    ListValue,
    MapValue,
    RecordSpec,
    RecordValue,
    TextValue,
)
from flowrun.frontend.yaml.declaration.vocabulary import (
    COLUMN,
    COLUMN_NAME,
    EXPRESSION,
    HINT_KEYS,
    METADATA_KEY,
    REFERENCE,
    SCHEMA_DOC,
    SOURCE_HINT_KEYS,
    TYPE,
)

WATERMARK = RecordSpec(
    "watermark",
    "watermark",
    "Event time of a source and how its progress is measured.",
    (
        KeySpec("column", COLUMN, "The TIMESTAMP or TIMESTAMP_LTZ column that holds the event time."),
        KeySpec("time", EXPRESSION, "Instead of `column`: an expression over the source's columns."),
        KeySpec(
            "type",
            ChoiceValue(("bounded", "monotonous", "punctuated", "source", "none")),
            "`bounded`: highest event time minus `delay`; `monotonous`: times never go back; `punctuated`: from `expression`; "
            "`source`: the connector sends them itself, if it can; "
            "`none`: rows have event times, but time only advances at the end of input.",
            default="bounded",
        ),
        KeySpec("delay", DurationValue(zero=True), "How late rows may be (bounded).", default="0s"),
        KeySpec("expression", EXPRESSION, "The watermark that a row carries, or NULL (punctuated)."),
        KeySpec(
            "idle_timeout", DurationValue(), "Without rows for so long, the source no longer holds event time back."
        ),
        KeySpec(
            "on_disorder",
            ChoiceValue(("fail", "warn", "ignore")),
            "What a row that is older than one before it causes (monotonous).",
            default="fail",
        ),
    ),
)
_TABLE_OPTIONS_DOC = "Every other key is an option of the connector or format; nested mappings are joined by dots."
_TABLE_KEYS = (
    KeySpec(
        "connector",
        TextValue("a connector"),
        "Which connector reads or writes; see `flowrun connectors`.",
        required=True,
    ),
    KeySpec("format", TextValue("a format"), "How rows are written in files, for connectors with formats."),
)
SOURCE = RecordSpec(
    "source",
    "a source",
    "Where rows come from.",
    (
        *_TABLE_KEYS,
        KeySpec(
            "schema",
            MapValue(TYPE, COLUMN_NAME),
            f"{SCHEMA_DOC}. May be left out for connectors with columns of their own.",
        ),
        KeySpec(
            "metadata",
            MapValue(METADATA_KEY, COLUMN_NAME),
            "Further columns: name and what the connector knows of a row beside its columns, in the connector's type.",
        ),
        KeySpec(
            "computed",
            MapValue(EXPRESSION, COLUMN_NAME),
            "Further columns: name and SQL expression over those before it.",
        ),
        KeySpec("watermark", RecordValue(WATERMARK), "Event time; without it only processing time can be used."),
        KeySpec(
            "partition_by", ListValue(COLUMN), "Columns of the schema whose values are in the folders' names, `k=v`."
        ),
        KeySpec(
            "primary_key",
            ListValue(COLUMN),
            "Columns whose values name one row each, not checked: rows of the source are versions of it for temporal joins.",
        ),
        *SOURCE_HINT_KEYS,
    ),
    open_doc=_TABLE_OPTIONS_DOC,
)
SINK = RecordSpec(
    "sink",
    "a sink",
    "Where rows go.",
    (
        KeySpec(
            "from",
            REFERENCE,
            "What is written: the name of a source, step, split branch or late output. Only a sink of dead letters has none.",
        ),
        *_TABLE_KEYS,
        KeySpec(
            "schema",
            MapValue(TYPE, COLUMN_NAME),
            f"{SCHEMA_DOC}: picks, reorders and converts the input's columns.",
            default="the input's columns",
        ),
        KeySpec(
            "metadata",
            MapValue(METADATA_KEY, COLUMN_NAME),
            "Columns of the input that the connector takes beside the row, not in it: name and metadata key.",
        ),
        KeySpec("partition_by", ListValue(COLUMN), "Columns whose values become folders."),
        KeySpec(
            "primary_key",
            ListValue(COLUMN),
            "Columns that name a row: a sink that can keeps one row a key, the newest, and takes updates that way.",
        ),
        *HINT_KEYS,
    ),
    open_doc=_TABLE_OPTIONS_DOC,
)
