"""Digests, GREATEST and LEAST."""

from __future__ import annotations

import datetime as dt
import hashlib
import re
from decimal import Decimal

import pytest

from flowrun.core.types import BIGINT, BOOLEAN, BYTES, DOUBLE, INT, STRING, char, decimal, timestamp, timestamp_ltz
from flowrun.errors import DataError, ExpressionError
from tests.functions.kernel_calls import Column, Constant, call, check, signature


@pytest.mark.parametrize("name", ["MD5", "SHA1", "SHA224", "SHA256", "SHA384", "SHA512"])
def test_digests(name):
    expected = hashlib.new(name.lower(), "Ünïcode ☂".encode()).hexdigest()
    check(name, ("Ünïcode ☂",), expected)
    check(name, (Constant("Ünïcode ☂".encode(), BYTES),), expected)
    check(name, (Constant(None, STRING),), None)
    assert signature(name, "x").result == char(len(expected))


def test_sha2_takes_the_length_in_bits():
    check("SHA2", ("x", 224), hashlib.sha224(b"x").hexdigest())
    assert signature("SHA2", "x", 512).result == char(128)
    assert signature("SHA2", "x", Column([256], INT)).result == STRING
    with pytest.raises(ExpressionError, match="224, 256, 384, 512, 128 given"):
        signature("SHA2", "x", 128)
    with pytest.raises(DataError, match="128 given"):
        call("SHA2", "x", Column([128], INT))


NOW, LATER = dt.datetime(2024, 3, 1, 10), dt.datetime(2024, 3, 1, 11)


@pytest.mark.parametrize(
    ("arguments", "greatest", "least"),
    [
        ((1, 3, 2), 3, 1),
        ((1, 2.5), 2.5, 1.0),
        (("a", "ü", "b"), "ü", "a"),
        ((True, False), True, False),
        ((Constant(Decimal("1.5"), decimal(2, 1)), 2), Decimal("2.0"), Decimal("1.5")),
        ((Constant(NOW, timestamp(3)), Constant(LATER, timestamp(3))), LATER, NOW),
        ((Constant(b"a", BYTES), Constant(b"b", BYTES)), b"b", b"a"),
        ((7,), 7, 7),
        ((1, Constant(None, INT)), None, None),
        ((Constant(None, BOOLEAN), True), None, None),
    ],
)
def test_greatest_and_least(arguments, greatest, least):
    check("GREATEST", arguments, greatest)
    check("LEAST", arguments, least)


def test_instants_compare_too():
    moments = [Constant(t.replace(tzinfo=dt.UTC), timestamp_ltz(3)) for t in (NOW, LATER)]
    assert call("GREATEST", *moments) == LATER.replace(tzinfo=dt.UTC)
    columns = [Column([m.value, None], m.type) for m in moments]
    assert call("LEAST", *columns) == [NOW.replace(tzinfo=dt.UTC), None]


def test_types_of_greatest():
    assert signature("GREATEST", 1, Column([], BIGINT)).result == BIGINT
    assert signature("LEAST", Column([], DOUBLE), 1).result == DOUBLE
    with pytest.raises(ExpressionError, match=re.escape("one common type, INT, CHAR(1) given")):
        signature("GREATEST", 1, "a")
    with pytest.raises(ExpressionError, match="takes at least 1 argument"):
        signature("LEAST")
