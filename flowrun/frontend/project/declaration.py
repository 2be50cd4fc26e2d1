"""The declaration of `flowrun.yaml`: every key, its kind, default and meaning. The keys of settings and sources are those of pipelines."""

from __future__ import annotations

from dataclasses import replace

from flowrun.frontend.settings.declaration import SETTINGS
from flowrun.frontend.trees.spec import (
    NAME_PATTERN,
    KeySpec,
    ListValue,
    MapValue,
    RecordSpec,
    RecordValue,
    TextValue,
    ValueSpec,
)
from flowrun.frontend.yaml.declaration.document_tables import SOURCE
from flowrun.frontend.yaml.declaration.vocabulary import FUNCTION_NAME, NODE_NAME, PYTHON_NAME

_VARIABLE = TextValue(
    "a variable's name", r"[A-Za-z_][A-Za-z0-9_]*", "letters, digits and _, not beginning with a digit"
)
_PATTERN = TextValue("a path or pattern")


def _partial(value: ValueSpec) -> ValueSpec:
    """The same without required keys: what one part of the project leaves out may be in another, or in the pipeline. Only records are
    merged with others.
    """
    if not isinstance(value, RecordValue):
        return value
    keys = tuple(replace(k, required=False, value=_partial(k.value)) for k in value.record.keys)
    return replace(value, record=replace(value.record, keys=keys))


_SETTINGS = _partial(RecordValue(SETTINGS))
_VARIABLES = MapValue(TextValue("a value"), _VARIABLE, partial=True)
ENVIRONMENT = RecordSpec(
    "environment",
    "an environment",
    "What differs in one environment, which `--env NAME` chooses.",
    (
        KeySpec("settings", _SETTINGS, "Settings that come before those of the project."),
        KeySpec("variables", _VARIABLES, "Values that come before those of the project."),
    ),
)
PROJECT = RecordSpec(
    "project",
    "a project",
    "The document `flowrun.yaml`. Keys that begin with `x-` are not looked at: a place for anchors.",
    (
        KeySpec(
            "pipelines",
            ListValue(_PATTERN),
            "The pipelines: paths of YAML and SQL files, and of programs in Python, relative to this file. `*` and `?` stand for "
            "characters of a name, `**` for folders.",
            default="`pipelines/**/*.yaml`, `pipelines/**/*.yml` and `pipelines/**/*.sql`",
        ),
        KeySpec("settings", _SETTINGS, "Settings of all pipelines that do not set them themselves."),
        KeySpec(
            "variables",
            _VARIABLES,
            "Values of `${NAME}` in all pipelines and in this file, and of `env.variables` in programs. `--var` comes before them, "
            "environment variables of the process come behind them. A value may have references itself, to what `--var` and the process "
            "give, and to secrets.",
        ),
        KeySpec(
            "environments",
            MapValue(RecordValue(ENVIRONMENT), TextValue("a name", NAME_PATTERN), partial=True),
            "Environments by name.",
        ),
        KeySpec(
            "default_environment",
            TextValue("the name of an environment"),
            "The environment without `--env`.",
            default="none: what `settings` and `variables` say alone",
        ),
        KeySpec(
            "sources",
            MapValue(RecordValue(SOURCE), NODE_NAME, partial=True),
            "Sources that pipelines may read without a declaration of their own. A script reads them as tables; what SQL has no words for, "
            "such as a `uid` or a watermark of another type than `bounded` and `source`, is an error there.",
        ),
        KeySpec(
            "tables",
            ListValue(_PATTERN),
            "SQL files that declare tables, views, functions and catalogs for all SQL scripts, as if they stood at their beginning; paths "
            "as of `pipelines`.",
        ),
        KeySpec(
            "functions",
            MapValue(PYTHON_NAME, FUNCTION_NAME, partial=True),
            "Python functions for the SQL of all pipelines: name and `module:attribute`, importable from the folder of this file.",
        ),
    ),
    free_prefix="x-",
)
DOCUMENT = RecordValue(PROJECT)
