"""Accumulators of one version of an aggregate, read by another."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypedDict

import numpy as np
import pyarrow as pa
import pytest

from flowrun.api.accumulators import (
    AccumulatorForm,
    accumulator_form,
    accumulator_remedy,
    form_change,
    form_of_document,
    members_that_came,
)
from flowrun.api.aggregate import UserAggregate
from flowrun.core.types import BIGINT
from flowrun.errors import DataError, StateError
from flowrun.operators.aggregation.accumulator_codec import AccumulatorCodec, AccumulatorError
from flowrun.operators.aggregation.user_aggregates import UserFolding


@dataclass
class Total:
    sum: int
    rows: int = 0
    last: str | None = field(kw_only=True)


class Seen(NamedTuple):
    sum: int
    rows: int = 0


class Members(TypedDict):
    sum: int
    last: str | None


class Summed:
    """The aggregate that wrote the state."""

    def create_accumulator(self) -> Total:
        return Total(0, last=None)

    def accumulate(self, total: Total, value: int) -> None:
        total.sum += value

    def get_value(self, total: Total) -> int:
        return total.sum


class Tenfold(Summed):
    """A later version, which keeps another number."""

    version = 3

    def migrate(self, old: Any, version: int) -> Total:
        if old["sum"] < 0:
            raise ValueError("below zero")
        return Total(old["sum"] * 10, version, last="migrated")


class Older(Summed):
    version = 2


class AsSeen(Summed):
    def create_accumulator(self) -> Seen:  # type: ignore[override]
        return Seen(0)


class AsMembers(Summed):
    def create_accumulator(self) -> Members:  # type: ignore[override]
        return {"sum": 0, "last": None}


class Untold(Summed):
    def create_accumulator(self):  # type: ignore[no-untyped-def]
        return Total(0, last=None)


def folding(kind: type) -> UserFolding:
    return UserFolding(UserAggregate(kind.__name__, f"{__name__}:{kind.__name__}", (), (BIGINT,), BIGINT))


def fold(kind: type, stored: bytes | None, *values: int) -> bytes:
    column = pa.array([{"f0": v} for v in values])
    (found,) = folding(kind).folded([stored], np.zeros(len(values), np.int64), column, None)
    assert found is not None
    return found


def test_a_field_that_came_has_its_default() -> None:
    stored = b'{"!":"dataclass","class":"Total","fields":{"sum":5}}'
    assert folding(Summed).results([stored]).to_pylist() == [5]
    assert b'"rows":0,"last":null' in fold(Summed, stored, 1)


def test_fields_that_went_or_have_no_default_are_refused() -> None:
    for text in (
        b'{"!":"dataclass","class":"Total","fields":{"rows":5}}',
        b'{"!":"dataclass","class":"Total","fields":{"sum":5,"max":1}}',
    ):
        with pytest.raises(StateError, match="the fields of Total were"):
            folding(Summed).results([text])


def test_a_later_version_migrates_what_an_earlier_one_kept() -> None:
    stored = fold(Summed, None, 2, 3)
    assert folding(Tenfold).results([stored]).to_pylist() == [50]
    migrated = fold(Tenfold, stored, 1)
    assert migrated.startswith(b'{"!":"version","version":3,"value":{"!":"dataclass","class":"Total",')
    assert migrated.endswith(b'"fields":{"sum":51,"rows":1,"last":"migrated"}}}')
    assert folding(Tenfold).results([migrated]).to_pylist() == [51]


def test_what_cannot_be_migrated_says_why() -> None:
    stored = fold(Tenfold, None, 1)
    with pytest.raises(StateError, match="is of version 3, and the aggregate of version 1"):
        folding(Summed).results([stored])
    with pytest.raises(StateError, match="is of version 1, and the aggregate of version 2") as raised:
        folding(Older).results([fold(Summed, None, 1)])
    assert "def migrate(self, old, version)" in (raised.value.hint or "")
    with pytest.raises(DataError, match=r"migrate failed: ValueError: below zero at .*test_accumulator_versions"):
        folding(Tenfold).results([fold(Summed, None, -1)])


def test_named_tuples_and_typed_dicts_are_accumulators() -> None:
    codec = AccumulatorCodec(__import__("sys").modules[__name__])
    assert codec.decode(codec.encode(Seen(1, 2))) == Seen(1, 2)
    assert codec.decode(b'{"!":"dataclass","class":"Seen","fields":{"sum":7}}') == Seen(7, 0)
    assert {name: make() for name, make in members_that_came(AsMembers()).items()} == {"last": None}
    assert members_that_came(Summed()) == {}


@pytest.mark.parametrize("text", [b'{"!":"version","version":', b'{"!":"version","version":"x","value":1}'])
def test_damaged_versions_are_one_error(text: bytes) -> None:
    with pytest.raises(AccumulatorError, match="damaged"):
        AccumulatorCodec().version_of(text)


def form(text: str, version: int = 1, *, migrates: bool = False, filled: tuple[str, ...] = ()) -> AccumulatorForm:
    name, _, inner = text.partition("(")
    fields = [part.split(": ") for part in inner.rstrip(")").split(", ") if part]
    document = {
        "type": name,
        "version": version,
        "migrates": migrates,
        "fields": [{"name": n, "type": t, "filled": n in filled} for n, t in fields],
    }
    found = form_of_document(document)
    assert found is not None
    return found


def test_forms_follow_from_annotations() -> None:
    assert str(accumulator_form(Summed())) == "Total(sum: int, rows: int, last: str | None)"
    assert [f.filled for f in accumulator_form(Summed()).fields] == [False, True, True]
    assert str(accumulator_form(Tenfold())).endswith(", version 3")
    assert accumulator_form(Untold()).type == ""
    found = accumulator_form(AsSeen())
    assert form_of_document(found.document()) == found
    assert form_of_document({"type": "x"}) is None


@pytest.mark.parametrize(
    ("before", "after", "wrong", "added"),
    [
        (form("T(a: int)"), form("T(a: int)"), [], []),
        (
            form("T(a: int)"),
            form("T(a: int, b: int)", filled=("b",)),
            [],
            ["field 'b' of T is added, with its default in what is there"],
        ),
        (form("T(a: int)"), form("T(a: int, b: int)"), ["field 'b' of T was added without a default"], []),
        (form("T(a: int)"), form("T(a: float)"), ["field 'a' of T was int, is float now"], []),
        (form("T(a: int, b: int)"), form("T(a: int)"), ["field 'b' of T was removed"], []),
        (form("T(a: int)"), form("U(a: int)"), ["accumulators were T(a: int), are U(a: int) now"], []),
        (form("list[int]"), form("list[float]"), ["accumulators were list[int], are list[float] now"], []),
        (
            form("list[int]"),
            form("T(a: int)", 2, migrates=True),
            [],
            ["accumulators go from version 1 to 2, by migrate()"],
        ),
        (
            form("T(a: int)"),
            form("T(a: int)", 2),
            ["accumulators go from version 1 to 2, but the aggregate has no method migrate"],
            [],
        ),
        (form("T(a: int)", 2), form("T(a: int)"), ["accumulators were of version 2, are of version 1 now"], []),
        (form(""), form("T(a: int)"), [], []),
    ],
    ids=str,
)
def test_what_becomes_of_accumulators(
    before: AccumulatorForm, after: AccumulatorForm, wrong: list[str], added: list[str]
) -> None:
    assert form_change(before, after) == (wrong, added)
    assert f"version = {before.version + 1}" in accumulator_remedy(before)
