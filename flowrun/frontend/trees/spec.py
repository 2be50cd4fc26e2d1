"""The value kinds by which the YAML document and its settings are specified; validation, JSON Schema and the reference page all read it.

A specification is a tree of value kinds. `Section` is what a checked record becomes: typed values by key, with their places.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import TypeAlias, cast

from flowrun.core.record import record
from flowrun.errors import Location
from flowrun.frontend.trees.nodes import YamlEntry, YamlMapping, YamlNode, YamlScalar

FIRST_VERSION = "0.1"
NAME_PATTERN = r"[A-Za-z_][A-Za-z0-9_-]*"


@record
class TextValue:
    """Any scalar, kept as text with its place. `what` names it in messages and in the reference."""

    what: str = "text"
    pattern: str | None = None
    pattern_doc: str = ""


AUTO = 0
"""What `auto` becomes where numbers are at least 1."""


@record
class IntegerValue:
    """A whole number within bounds, or the word `auto` if that is allowed, which becomes `AUTO`."""

    minimum: int | None = None
    maximum: int | None = None
    auto: bool = False


@record
class NumberValue:
    """A number, possibly with a fraction; greater than zero if `positive`."""

    positive: bool = False
    maximum: float | None = None


@record
class BooleanValue:
    """`true` or `false`."""


@record
class DurationValue:
    """A duration such as `500ms`, `10s` or `1m 30s`; becomes ms. `zero`: 0 is allowed."""

    zero: bool = False


@record
class ChoiceValue:
    """One of a few words."""

    choices: tuple[str, ...]


@record
class AnyValue:
    """Any YAML value, as a Python value: for arguments of the user's own functions."""


@record
class TreeValue:
    """Any YAML value, kept as the tree that it is, with its places; `what` names it in the reference."""

    what: str


ScalarValue: TypeAlias = TextValue | IntegerValue | NumberValue | BooleanValue | DurationValue | ChoiceValue


@record
class ListValue:
    """A list of at least `minimum` items; a lone scalar stands for a list of one if `single`."""

    item: ValueSpec
    minimum: int = 1
    single: bool = True


@record
class MapValue:
    """A mapping from names that the user chooses, in order. If not `partial`, one wrong value makes all of it unusable."""

    value: ValueSpec
    key: TextValue
    minimum: int = 1
    partial: bool = False


@record
class RecordSpec:
    """A mapping with known keys.

    Attributes:
        name: of the definition in the JSON Schema.
        title: how messages name it, e.g. `a step`.
        doc: what it is, for the reference.
        open_doc: if not empty, further keys are allowed (connector options); says what they are.
        reserved: keys that a later version will understand, with what to use meanwhile.
        free_prefix: keys that begin with this are the user's own and are not looked at.
    """

    name: str
    title: str
    doc: str
    keys: tuple[KeySpec, ...]
    open_doc: str = ""
    reserved: Mapping[str, str] = field(default_factory=dict)
    free_prefix: str | None = None

    def key(self, name: str) -> KeySpec | None:
        """The specification of a key, or None."""
        return next((k for k in self.keys if k.name == name), None)


@record
class RecordValue:
    """A record. If `short` is given, a scalar of that kind may stand for the record (`map: module:function`)."""

    record: RecordSpec
    short: ScalarValue | None = None


@record
class VariantValue:
    """A record whose further keys depend on the value of the key `tag` (a window's type)."""

    tag: str
    tag_doc: str
    variants: tuple[tuple[str, RecordSpec], ...]
    default: str | None = None


ValueSpec: TypeAlias = AnyValue | TreeValue | ScalarValue | ListValue | MapValue | RecordValue | VariantValue


@record
class KeySpec:
    """One key of a record. `default` is text for the reference; absent values are None in a `Section`."""

    name: str
    value: ValueSpec
    doc: str
    required: bool = False
    default: str | None = None
    since: str = FIRST_VERSION


@record
class Named:
    """A value under a name that the user chose."""

    key: YamlScalar
    value: object

    @property
    def location(self) -> Location:
        """Where the name stands."""
        return self.key.location


@record
class Section:
    """A checked record: what was given and right is in `values`; `given` names every known key that was written.

    Attributes:
        spec: the record's specification (of a variant: the chosen one).
        variant: value of a variant's tag, else empty.
        extra: entries of an open record that are no keys of its own.
    """

    node: YamlMapping
    spec: RecordSpec
    location: Location
    values: Mapping[str, object]
    given: frozenset[str]
    extra: tuple[YamlEntry, ...] = ()
    variant: str = ""

    def has(self, name: str) -> bool:
        """Whether the key was written, rightly or not."""
        return name in self.given

    def broken(self, name: str) -> bool:
        """Whether the key was written, but its value is wrong (and that has been reported)."""
        return name in self.given and name not in self.values

    def at(self, name: str) -> Location:
        """Where the key stands; the record's place if it is absent."""
        entry = self.node.entry(name)
        return self.location if entry is None else entry.key.location

    def value_at(self, name: str) -> Location:
        """Where the key's value stands; the record's place if it is absent."""
        entry = self.node.entry(name)
        return self.location if entry is None else entry.value.location

    def scalar(self, name: str) -> YamlScalar | None:
        """A text value."""
        return cast("YamlScalar | None", self.values.get(name))

    def text(self, name: str) -> str | None:
        """A text value without its place, or a choice."""
        value = self.values.get(name)
        return value.text if isinstance(value, YamlScalar) else cast("str | None", value)

    def integer(self, name: str) -> int | None:
        """An integer, or a duration in ms."""
        return cast("int | None", self.values.get(name))

    def number(self, name: str) -> float | None:
        """A number."""
        return cast("float | None", self.values.get(name))

    def flag(self, name: str) -> bool | None:
        """A boolean."""
        return cast("bool | None", self.values.get(name))

    def scalars(self, name: str) -> tuple[YamlScalar, ...]:
        """A list of texts; empty if absent."""
        return cast("tuple[YamlScalar, ...]", self.values.get(name, ()))

    def section(self, name: str) -> Section | None:
        """A record or variant."""
        value = self.values.get(name)
        return value if isinstance(value, Section) else None

    def tree(self, name: str) -> YamlNode | None:
        """A value that is kept as its tree."""
        return cast("YamlNode | None", self.values.get(name))

    def sections(self, name: str) -> tuple[Section, ...]:
        """A list of records; empty if absent."""
        return cast("tuple[Section, ...]", self.values.get(name, ()))

    def named(self, name: str) -> Mapping[str, Named]:
        """A mapping of names, in order; empty if absent."""
        return cast("Mapping[str, Named]", self.values.get(name, {}))


def records(value: ValueSpec) -> Iterator[RecordSpec]:
    """All records below a value's specification, outermost first, each once."""
    seen: set[str] = set()

    def visit(spec: ValueSpec) -> Iterator[RecordSpec]:
        match spec:
            case RecordValue():
                if spec.record.name not in seen:
                    seen.add(spec.record.name)
                    yield spec.record
                    for key in spec.record.keys:
                        yield from visit(key.value)
            case VariantValue():
                for _, record in spec.variants:
                    yield from visit(RecordValue(record))
            case MapValue():
                yield from visit(spec.value)
            case ListValue():
                yield from visit(spec.item)
            case _:
                return

    yield from visit(value)
