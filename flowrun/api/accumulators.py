"""What the accumulators of a user's aggregate are made of, as its annotations say, and whether one version's can be read by another.

Accumulators are Python values that checkpoints keep as JSON text. What `create_accumulator` is annotated to give says what they are, so
that a new version of the aggregate can be compared with a savepoint before it runs.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Mapping
from typing import Any

from flowrun.api.annotations import bare, hints_of, is_nullable, row_fields, shown
from flowrun.core.record import record


@record
class AccumulatorField:
    """A field of a record that accumulators are.

    Attributes:
        type: as it is annotated.
        filled: an accumulator that was stored without it can be read: it has a default, or may be None.
    """

    name: str
    type: str
    filled: bool = False


@record
class AccumulatorForm:
    """What accumulators are.

    Attributes:
        type: the annotation of `create_accumulator`, of a record its name.
        fields: of a record.
        version: which the aggregate says of itself.
        migrates: it has a method `migrate`, which makes accumulators of those of earlier versions.
    """

    type: str
    fields: tuple[AccumulatorField, ...] = ()
    version: int = 1
    migrates: bool = False

    def __str__(self) -> str:
        inner = ", ".join(f"{f.name}: {f.type}" for f in self.fields)
        return (f"{self.type}({inner})" if inner else self.type or "values of no declared type") + (
            f", version {self.version}" if self.version != 1 else ""
        )

    def document(self) -> dict[str, Any]:
        """It as JSON values."""
        return dataclasses.asdict(self)


def form_of_document(document: Any) -> AccumulatorForm | None:
    """What `AccumulatorForm.document` gave; None: it is something else."""
    try:
        fields = tuple(AccumulatorField(str(f["name"]), str(f["type"]), bool(f["filled"])) for f in document["fields"])
        return AccumulatorForm(str(document["type"]), fields, int(document["version"]), bool(document["migrates"]))
    except (KeyError, TypeError, ValueError):
        return None


def accumulator_form(aggregate: Any) -> AccumulatorForm:
    """What the accumulators of an aggregate are; the type is empty if `create_accumulator` says nothing.

    >>> class Mean:
    ...     def create_accumulator(self) -> list[float]: ...
    >>> str(accumulator_form(Mean()))
    'list[float]'
    """
    annotation = hints_of(aggregate.create_accumulator).get("return")
    version, migrates = version_of(aggregate), callable(getattr(aggregate, "migrate", None))
    kind = bare(annotation)
    fields = row_fields(kind)
    if fields is None:
        return AccumulatorForm("" if annotation is None else shown(annotation), (), version, migrates)
    filled = defaults_of(kind)
    parts = tuple(AccumulatorField(n, _text(a, (kind,)), n in filled) for n, a in fields.items())
    return AccumulatorForm(kind.__qualname__, parts, version, migrates)


def version_of(aggregate: Any) -> int:
    """The version of an aggregate's accumulators: its attribute `version`, else 1."""
    version = getattr(aggregate, "version", 1)
    return version if isinstance(version, int) and not isinstance(version, bool) else 1


def defaults_of(kind: type) -> Mapping[str, Any]:
    """Field → what gives its value where it is missing, of a dataclass, `NamedTuple` or `TypedDict`.

    >>> @dataclasses.dataclass
    ... class Total:
    ...     rows: int
    ...     sum: float = 0.0
    ...     last: str | None = dataclasses.field(kw_only=True)
    >>> {name: make() for name, make in defaults_of(Total).items()}
    {'last': None, 'sum': 0.0}
    """
    found: dict[str, Any] = {n: _none for n, a in (row_fields(kind) or {}).items() if is_nullable(a)}
    if dataclasses.is_dataclass(kind):
        for field in dataclasses.fields(kind):
            if field.default is not dataclasses.MISSING:
                found[field.name] = _Constant(field.default)
            elif field.default_factory is not dataclasses.MISSING:
                found[field.name] = field.default_factory
    for name, value in getattr(kind, "_field_defaults", {}).items():
        found[name] = _Constant(value)
    return found


def members_that_came(aggregate: Any) -> Mapping[str, Any]:
    """Member → what gives its value in a stored accumulator without it, of an aggregate whose accumulators are a `TypedDict`."""
    kind = bare(hints_of(aggregate.create_accumulator).get("return"))
    if not typing.is_typeddict(kind):
        return {}
    return {n: make for n, make in defaults_of(kind).items() if n in kind.__required_keys__}


@record
class _Constant:
    value: Any

    def __call__(self) -> Any:
        return self.value


def _none() -> None:
    return None


def _text(annotation: Any, around: tuple[Any, ...]) -> str:
    """An annotation with the fields of records in it."""
    kind = bare(annotation)
    fields = row_fields(kind)
    if fields is not None and kind not in around:
        inner = ", ".join(f"{n}: {_text(a, (*around, kind))}" for n, a in fields.items())
        return f"{kind.__qualname__}({inner})" + (" | None" if is_nullable(annotation) else "")
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if isinstance(origin, type) and parts and kind is annotation:
        return f"{origin.__qualname__}[{', '.join(_text(p, around) for p in parts)}]"
    return shown(annotation)


def accumulator_remedy(old: AccumulatorForm) -> str:
    """What to do about accumulators that cannot be read."""
    return (
        f"undo the change, or set version = {old.version + 1} in the class and write def migrate(self, old, version), which gives the new "
        "accumulator; or give the step a new uid to start it without its old state"
    )


def form_change(old: AccumulatorForm, new: AccumulatorForm) -> tuple[list[str], list[str]]:
    """(what keeps accumulators of the old form from being read, how they are made new ones), one sentence each.

    >>> form_change(AccumulatorForm("T", (AccumulatorField("a", "int"),)), AccumulatorForm("T", (AccumulatorField("a", "float"),)))
    (["field 'a' of T was int, is float now"], [])
    """
    if new.version < old.version:
        return [f"accumulators were of version {old.version}, are of version {new.version} now"], []
    if new.version > old.version:
        versions = f"accumulators go from version {old.version} to {new.version}"
        if new.migrates:
            return [], [f"{versions}, by migrate()"]
        return [f"{versions}, but the aggregate has no method migrate"], []
    if not old.type or not new.type:
        return [], []
    if old.type != new.type or bool(old.fields) != bool(new.fields):
        return [f"accumulators were {old}, are {new} now"], []
    before, after = {f.name: f for f in old.fields}, {f.name: f for f in new.fields}
    wrong = [f"field '{n}' of {old.type} was removed" for n in before if n not in after]
    added = []
    for name, field in after.items():
        if name not in before and field.filled:
            added.append(f"field '{name}' of {new.type} is added, with its default in what is there")
        elif name not in before:
            wrong.append(f"field '{name}' of {new.type} was added without a default")
        elif before[name].type != field.type:
            wrong.append(f"field '{name}' of {new.type} was {before[name].type}, is {field.type} now")
    return wrong, [] if wrong else added
