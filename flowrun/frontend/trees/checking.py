"""Checks a tree against the specification: unknown and misplaced keys, kinds of values, required keys; finds everything at once."""

from __future__ import annotations

import re
from collections.abc import Iterable

from flowrun.core.units import parse_duration_ms
from flowrun.errors import Location, did_you_mean, near_matches
from flowrun.frontend.diagnostics import Diagnostics
from flowrun.frontend.trees import spec as specs
from flowrun.frontend.trees.nodes import (
    ScalarStyle,
    YamlEntry,
    YamlMapping,
    YamlNode,
    YamlScalar,
    YamlSequence,
    describe,
)

_INTEGER = re.compile(r"[+-]?\d(_?\d)*")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


class _Invalid(Exception):
    """The value is wrong; that has been reported."""


def check_document(node: YamlNode, spec: specs.RecordValue, diagnostics: Diagnostics) -> specs.Section | None:
    """The document as a section; None if it is not even a mapping. Every problem goes to `diagnostics`."""
    try:
        checked = _Checker(spec, diagnostics).record(node, spec)
    except _Invalid:
        return None
    return checked if isinstance(checked, specs.Section) else None


class _Checker:
    def __init__(self, document: specs.RecordValue, diagnostics: Diagnostics) -> None:
        self._diagnostics = diagnostics
        self._homes: dict[str, list[str]] = {}
        for record in specs.records(document):
            for key in record.keys:
                self._homes.setdefault(key.name, []).append(record.title)

    def _fail(self, message: str, at: Location, hint: str | None = None) -> _Invalid:
        self._diagnostics.error(message, at, hint=hint)
        return _Invalid()

    # -- collections ------------------------------------------------------------------------------------------------

    def value(self, node: YamlNode, spec: specs.ValueSpec, name: str) -> object:
        """The typed value of `node`. Raises _Invalid after reporting."""
        if isinstance(node, YamlScalar) and node.unresolved:
            raise _Invalid
        if isinstance(node, YamlScalar) and node.secret:
            raise self._fail(
                f"a secret cannot be used in '{name}'", node.location, "secrets are for connector options only"
            )
        match spec:
            case specs.RecordValue():
                return self.record(node, spec)
            case specs.VariantValue():
                return self.variant(node, spec, name)
            case specs.ListValue():
                return self.listed(node, spec, name)
            case specs.MapValue():
                return self.mapped(node, spec, name)
            case specs.AnyValue():
                return self.any_value(node, name)
            case specs.TreeValue():
                return node
            case _:
                return self.scalar(node, spec, name)

    def record(self, node: YamlNode, spec: specs.RecordValue) -> specs.Section | YamlScalar:
        """A section, or the short form's scalar."""
        title = spec.record.title
        if spec.short is not None and isinstance(node, YamlScalar):
            return self.scalar(node, spec.short, title)  # type: ignore[return-value]  # short forms are texts
        return self._section(self._mapping(node, title), spec.record, "")

    def variant(self, node: YamlNode, spec: specs.VariantValue, name: str) -> specs.Section:
        """A section of the variant that the tag chooses."""
        mapping = self._mapping(node, name)
        entry = mapping.entry(spec.tag)
        variants = dict(spec.variants)
        if entry is None and spec.default is None:
            raise self._fail(f"{name} needs the key '{spec.tag}'", node.location, "one of " + ", ".join(variants))
        chosen = spec.default or ""
        if entry is not None:
            chosen = str(self.value(entry.value, specs.ChoiceValue(tuple(variants)), spec.tag))
        return self._section(mapping, variants[chosen], chosen, skip=spec.tag)

    def _mapping(self, node: YamlNode, name: str) -> YamlMapping:
        if isinstance(node, YamlMapping):
            return node
        raise self._fail(f"{name} expects a mapping, got {describe(node)}", node.location)

    def _section(self, node: YamlMapping, spec: specs.RecordSpec, variant: str, skip: str = "") -> specs.Section:
        values: dict[str, object] = {}
        given: set[str] = set()
        extra: list[YamlEntry] = []
        for entry in node.entries:
            key = spec.key(entry.name)
            if entry.name == skip or (spec.free_prefix and entry.name.startswith(spec.free_prefix)):
                continue
            if key is None:
                if spec.open_doc:
                    extra.append(entry)
                else:
                    self._unknown_key(entry, spec, skip)
                    # a misspelt key counts as given: what its absence would lead to is not reported
                    given.update(near_matches(entry.name, [k.name for k in spec.keys])[:1])
                continue
            given.add(key.name)
            try:
                values[key.name] = self.value(entry.value, key.value, key.name)
            except _Invalid:
                continue
        for key in spec.keys:
            if key.required and key.name not in given:
                self._missing_key(node, spec, key, extra)
        return specs.Section(node, spec, node.location, values, frozenset(given), tuple(extra), variant)

    def _missing_key(
        self, node: YamlMapping, spec: specs.RecordSpec, key: specs.KeySpec, extra: list[YamlEntry]
    ) -> None:
        """A required key is absent; among free keys it may only be misspelt."""
        misspelt = next((e for e in extra if near_matches(e.name, [key.name])), None)
        at = node.location if misspelt is None else misspelt.key.location
        hint = key.doc if misspelt is None else f"did you mean '{key.name}'?"
        self._diagnostics.error(f"{spec.title} needs the key '{key.name}'", at, hint=hint)

    def _unknown_key(self, entry: YamlEntry, spec: specs.RecordSpec, tag: str) -> None:
        known = [k.name for k in spec.keys] + ([tag] if tag else [])
        at = entry.key.location
        if entry.name in spec.reserved:
            self._diagnostics.error(f"{spec.title} has no key '{entry.name}'", at, hint=spec.reserved[entry.name])
            return
        homes = self._homes.get(entry.name, [])
        if homes:
            hint = f"'{entry.name}' belongs to {_one_of(homes)}"
        else:
            hint = did_you_mean(entry.name, known) or f"{spec.title} takes no keys"
        self._diagnostics.error(f"{spec.title} has no key '{entry.name}'", at, hint=hint)

    def listed(self, node: YamlNode, spec: specs.ListValue, name: str) -> tuple[object, ...]:
        """A tuple of typed items."""
        if isinstance(node, YamlSequence):
            items = node.items
        elif spec.single and isinstance(node, YamlScalar) and not node.is_null:
            items = (node,)
        else:
            raise self._fail(f"'{name}' expects a list, got {describe(node)}", node.location)
        if len(items) < spec.minimum:
            least = "one item" if spec.minimum == 1 else f"{spec.minimum} items"
            raise self._fail(f"'{name}' needs at least {least}", node.location)
        values, invalid = [], False
        for item in items:
            try:
                values.append(self.value(item, spec.item, name))
            except _Invalid:
                invalid = True
        if invalid:
            raise _Invalid
        return tuple(values)

    def mapped(self, node: YamlNode, spec: specs.MapValue, name: str) -> dict[str, specs.Named]:
        """Typed values by the user's names; wrong ones are left out."""
        mapping = self._mapping(node, f"'{name}'")
        if len(mapping.entries) < spec.minimum:
            raise self._fail(f"'{name}' is empty", node.location, hint=f"name at least {spec.minimum}")
        values: dict[str, specs.Named] = {}
        invalid = False
        for entry in mapping.entries:
            try:
                self.scalar(entry.key, spec.key, name)
                values[entry.name] = specs.Named(entry.key, self.value(entry.value, spec.value, entry.name))
            except _Invalid:
                invalid = True
                values.setdefault(entry.name, specs.Named(entry.key, None))
        if invalid and not spec.partial:
            raise _Invalid
        return values

    def any_value(self, node: YamlNode, name: str) -> object:
        """A Python value: None, a boolean, a number, a text, a list or a dict. Quoted scalars are texts."""
        match node:
            case YamlMapping():
                return {e.name: self.value(e.value, specs.AnyValue(), f"{name}.{e.name}") for e in node.entries}
            case YamlSequence():
                return [self.value(item, specs.AnyValue(), name) for item in node.items]
            case YamlScalar() if node.is_null:
                return None
            case YamlScalar() if node.style is ScalarStyle.PLAIN and node.text in ("true", "false"):
                return node.text == "true"
            case YamlScalar() if node.style is ScalarStyle.PLAIN and _INTEGER.fullmatch(node.text):
                return int(node.text)
            case YamlScalar() if node.style is ScalarStyle.PLAIN and _NUMBER.fullmatch(node.text):
                return float(node.text)
            case YamlScalar():
                return node.text
        raise self._fail(f"'{name}' expects a value, got {describe(node)}", node.location)

    # -- scalars ----------------------------------------------------------------------------------------------------

    def scalar(self, node: YamlNode, spec: specs.ScalarValue, name: str) -> object:
        """The typed value of a scalar."""
        if not isinstance(node, YamlScalar) or (node.is_null and not isinstance(spec, specs.ChoiceValue)):
            # `{a: DECIMAL(10,2)}` is two entries in YAML: `a: DECIMAL(10` and `2)`
            torn = any(mark in name for mark in ")>]")
            hint = 'inside { } quote values that contain commas: "DECIMAL(10,2)"' if torn else None
            if isinstance(node, YamlScalar) and node.is_null and node.text:
                hint = f'YAML reads a bare {node.text} as nothing: write "{node.text}", or another name'
            raise self._fail(f"'{name}' expects {expectation(spec)}, got {describe(node)}", node.location, hint)
        match spec:
            case specs.TextValue():
                return self._text(node, spec, name)
            case specs.IntegerValue():
                return self._integer(node, spec, name)
            case specs.NumberValue():
                return self._number(node, spec, name)
            case specs.BooleanValue():
                return self._boolean(node, name)
            case specs.DurationValue():
                return self._duration(node, spec, name)
            case specs.ChoiceValue():
                return self._choice(node, spec, name)

    def _text(self, node: YamlScalar, spec: specs.TextValue, name: str) -> YamlScalar:
        if not node.text.strip():
            raise self._fail(f"'{name}' expects {spec.what}, got an empty text", node.location)
        if spec.pattern is not None and re.fullmatch(spec.pattern, node.text) is None:
            raise self._fail(f"'{node.text}' is not {spec.what}", node.location, spec.pattern_doc or None)
        return node

    def _integer(self, node: YamlScalar, spec: specs.IntegerValue, name: str) -> int:
        text = node.text.strip()
        if spec.auto and text == "auto":
            return specs.AUTO
        if _INTEGER.fullmatch(text) is None:
            raise self._fail(f"'{name}' expects {expectation(spec)}, got {describe(node)}", node.location)
        if len(text) > 24 or not -(2**63) <= int(text) < 2**63:
            raise self._fail(f"'{name}' must fit 64 bits, got {describe(node)}", node.location)
        value = int(text)
        if spec.minimum is not None and value < spec.minimum:
            raise self._fail(f"'{name}' must be at least {spec.minimum}, got {value}", node.location)
        if spec.maximum is not None and value > spec.maximum:
            raise self._fail(f"'{name}' must be at most {spec.maximum}, got {value}", node.location)
        return value

    def _number(self, node: YamlScalar, spec: specs.NumberValue, name: str) -> float:
        if _NUMBER.fullmatch(node.text.strip()) is None:
            raise self._fail(f"'{name}' expects {expectation(spec)}, got {describe(node)}", node.location)
        value = float(node.text)
        if spec.positive and value <= 0:
            raise self._fail(f"'{name}' must be greater than 0, got {node.text}", node.location)
        if spec.maximum is not None and value > spec.maximum:
            raise self._fail(f"'{name}' must be at most {spec.maximum:g}, got {node.text}", node.location)
        return value

    def _boolean(self, node: YamlScalar, name: str) -> bool:
        folded = node.text.strip().lower()
        if folded not in ("true", "false"):
            hint = "write true or false" if folded in ("yes", "no", "on", "off", "1", "0", "y", "n") else None
            raise self._fail(f"'{name}' expects true or false, got {describe(node)}", node.location, hint)
        return folded == "true"

    def _duration(self, node: YamlScalar, spec: specs.DurationValue, name: str) -> int:
        try:
            value = parse_duration_ms(node.text)
        except ValueError as error:
            raise self._fail(f"'{name}' expects a duration, got {describe(node)}", node.location, str(error)) from None
        if value == 0 and not spec.zero:
            raise self._fail(f"'{name}' must be longer than 0", node.location)
        if value >= 1 << 62:
            raise self._fail(f"'{name}' is longer than any time, got {describe(node)}", node.location)
        return value

    def _choice(self, node: YamlScalar, spec: specs.ChoiceValue, name: str) -> str:
        folded = node.text.strip().lower()
        if folded not in spec.choices:
            raise self._fail(
                f"'{name}' must be one of {', '.join(spec.choices)}, got {describe(node)}",
                node.location,
                did_you_mean(folded, near_matches(folded, spec.choices)),
            )
        return folded


def expectation(spec: specs.ScalarValue) -> str:
    """What a scalar must be, in words.

    >>> expectation(specs.IntegerValue(1))
    'a whole number of at least 1'
    """
    match spec:
        case specs.TextValue():
            return spec.what
        case specs.IntegerValue():
            lower = f" of at least {spec.minimum}" if spec.minimum is not None else ""
            return f"a whole number{lower}" + (", or auto" if spec.auto else "")
        case specs.NumberValue():
            return "a number greater than 0" if spec.positive else "a number"
        case specs.BooleanValue():
            return "true or false"
        case specs.DurationValue():
            return "a duration such as 10s"
        case specs.ChoiceValue():
            return "one of " + ", ".join(spec.choices)


def _one_of(titles: Iterable[str]) -> str:
    unique = list(dict.fromkeys(titles))
    return " or ".join(", ".join(unique).rsplit(", ", 1)) if len(unique) > 1 else unique[0]
