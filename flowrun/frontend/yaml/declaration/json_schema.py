"""JSON Schema (draft 2020-12) of pipeline documents, for editors; made from the specification that validation uses.

Every value may also be a `${…}` reference. What a schema cannot say (names, types, expressions) is left to `flowrun validate`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from flowrun.api.connector import Connector, FormatOptions
from flowrun.connectors.formats.registry import format_names, format_options
from flowrun.connectors.registry import connector_named, connector_names
from flowrun.core.options import Option, OptionType
from flowrun.frontend.trees import spec as specs
from flowrun.frontend.yaml.declaration.document import DOCUMENT, PIPELINE
from flowrun.frontend.yaml.declaration.document_tables import SINK, SOURCE
from flowrun.plan.tables import TableRole, declared_options

Json: TypeAlias = dict[str, Any]

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_REFERENCE = r"\$\{"
_DURATION = r"^\s*(0|(\d+(\.\d+)?\s*[A-Za-z]+\s*)+)$"
_OPTION_TYPES: dict[OptionType, Json] = {
    OptionType.INT: {"type": "integer"},
    OptionType.FLOAT: {"type": "number"},
    OptionType.BOOLEAN: {"type": "boolean"},
}


def document_schema(connectors: Iterable[Connector], formats: Iterable[FormatOptions]) -> Json:
    """The schema of a pipeline that may use these connectors and formats."""
    known, options = tuple(connectors), tuple(formats)
    definitions = {record.name: _record(record) for record in specs.records(DOCUMENT) if record is not PIPELINE}
    definitions["reference"] = {"type": "string", "pattern": _REFERENCE, "description": "a ${VARIABLE}"}
    for record in (SOURCE, SINK):
        usable = [c for c in known if (c.create_source if record is SOURCE else c.create_sink) is not None]
        schema = definitions[record.name]
        if usable:
            schema["properties"]["connector"] = _or_reference({"enum": [c.name for c in usable]})
        schema["allOf"] = [_connector_rule(record, c, options) for c in usable]
    pipeline = _record(PIPELINE)
    pipeline["required"] = [
        name for name in pipeline["required"] if name != "sources"
    ]  # they may be those of its project
    return {"$schema": DIALECT, "title": "flowrun pipeline", **pipeline, "$defs": definitions}


def json_schema() -> Json:
    """The schema of a pipeline that may use every registered connector and format. Imports them all."""
    connectors = [connector_named(name) for name in connector_names()]
    return document_schema(connectors, [format_options(name) for name in format_names()])


def schema_of(document: specs.RecordValue, title: str) -> Json:
    """The schema of documents with another declaration."""
    definitions = {record.name: _record(record) for record in specs.records(document) if record is not document.record}
    definitions["reference"] = {"type": "string", "pattern": _REFERENCE, "description": "a ${VARIABLE}"}
    return {"$schema": DIALECT, "title": title, **_record(document.record), "$defs": definitions}


def _record(record: specs.RecordSpec) -> Json:
    schema = _object(record.keys, record.doc, closed=not record.open_doc)
    if record.free_prefix is not None:
        schema["patternProperties"] = {f"^{record.free_prefix}": {}}
    return schema


def _object(keys: Iterable[specs.KeySpec], doc: str, closed: bool) -> Json:
    keys = tuple(keys)
    schema: Json = {"type": "object", "description": doc, "properties": {k.name: _key(k) for k in keys}}
    if required := [k.name for k in keys if k.required]:
        schema["required"] = required
    if closed:
        schema["additionalProperties"] = False
    return schema


def _key(key: specs.KeySpec) -> Json:
    doc = key.doc if key.default is None else f"{key.doc} Default: {key.default}."
    return {**_value(key.value), "description": doc}


def _value(spec: specs.ValueSpec) -> Json:
    match spec:
        case specs.RecordValue():
            full: Json = {"$ref": f"#/$defs/{spec.record.name}"}
            return full if spec.short is None else {"anyOf": [_value(spec.short), full]}
        case specs.VariantValue():
            return {"oneOf": [_variant(spec, tag, record) for tag, record in spec.variants]}
        case specs.ListValue():
            several = {"type": "array", "items": _value(spec.item), "minItems": spec.minimum}
            return {"anyOf": [several, _value(spec.item)]} if spec.single else several
        case specs.MapValue():
            schema: Json = {"type": "object", "additionalProperties": _value(spec.value), "minProperties": spec.minimum}
            if spec.key.pattern:
                schema["propertyNames"] = {"pattern": f"^{spec.key.pattern}$"}
            return schema
        case specs.AnyValue() | specs.TreeValue():
            return {}
        case _:
            return _scalar(spec)


def _variant(spec: specs.VariantValue, tag: str, record: specs.RecordSpec) -> Json:
    schema = _object(record.keys, record.doc, closed=True)
    schema["properties"] = {spec.tag: {"const": tag, "description": spec.tag_doc}, **schema["properties"]}
    if tag != spec.default:
        schema["required"] = [spec.tag, *schema.get("required", ())]
    return schema


def _scalar(spec: specs.ScalarValue) -> Json:
    match spec:
        case specs.TextValue():
            if spec.pattern is None:
                return {"type": ["string", "number", "boolean"]}
            return _or_reference({"type": "string", "pattern": f"^{spec.pattern}$"})
        case specs.IntegerValue():
            bounds = {"minimum": spec.minimum, "maximum": spec.maximum}
            auto = [{"const": "auto"}] if spec.auto else []
            return _or_reference({"type": "integer", **{k: v for k, v in bounds.items() if v is not None}}, *auto)
        case specs.NumberValue():
            limits: Json = {"exclusiveMinimum": 0} if spec.positive else {}
            limits |= {} if spec.maximum is None else {"maximum": spec.maximum}
            return _or_reference({"type": "number", **limits})
        case specs.BooleanValue():
            return _or_reference({"type": "boolean"})
        case specs.DurationValue():
            return _or_reference({"type": "string", "pattern": _DURATION}, *([{"const": 0}] if spec.zero else []))
        case specs.ChoiceValue():
            return _or_reference({"enum": list(spec.choices)})


def _or_reference(*schemas: Json) -> Json:
    return {"anyOf": [*schemas, {"$ref": "#/$defs/reference"}]}


def _connector_rule(record: specs.RecordSpec, connector: Connector, formats: Iterable[FormatOptions]) -> Json:
    """If this connector is named, then only its options (and those of its formats) may stand beside the record's own keys."""
    roles = (TableRole.SOURCE, TableRole.LOOKUP) if record is SOURCE else (TableRole.SINK,)
    options = [o for role in roles if _has_role(connector, role) for o in declared_options(connector, None, role)]
    named = list({o.name: o for o in options}.values())
    for format_ in formats:
        if format_.name in connector.formats:
            parts = ("", "key.", "value.") if connector.message_keys else ("",)
            named += [_prefixed(o, part + format_.name) for part in parts for o in format_.options]
    properties: Json = {key.name: True for key in record.keys}
    if connector.formats:
        properties["format"] = _or_reference({"enum": list(connector.formats)})
    patterns: Json = {}
    for option in named:
        head, dot, _ = option.name.partition(".")
        if dot and head != "#" and head not in properties:
            properties[head] = {"type": "object"}  # the nested way to write it
        if "#" in option.name:
            patterns["^" + option.name.replace(".", r"\.").replace("#", ".+") + "$"] = _option(option)
        else:
            properties[option.name] = _option(option)
    if any(option.name.startswith("#.") for option in named):  # the nested way to write those
        patterns[f"^(?!({'|'.join(properties)})$)[^.]+$"] = {"type": "object"}
    rule: Json = {"properties": properties, "additionalProperties": False}
    if patterns:
        rule["patternProperties"] = patterns
    return {"if": {"properties": {"connector": {"const": connector.name}}, "required": ["connector"]}, "then": rule}


def _has_role(connector: Connector, role: TableRole) -> bool:
    return role is not TableRole.LOOKUP or connector.create_lookup is not None


def _prefixed(option: Option, prefix: str) -> Option:
    return Option(f"{prefix}.{option.name}", option.type, option.doc, option.default, False, option.choices)


def _option(option: Option) -> Json:
    schema: Mapping[str, Any] = _OPTION_TYPES.get(option.type, {"type": ["string", "number", "boolean"]})
    if option.type is OptionType.ENUM:
        schema = {"enum": list(option.choices)}
    return {**_or_reference(dict(schema)), "description": option.doc}
