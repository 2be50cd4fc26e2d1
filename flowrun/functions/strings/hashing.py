# ruff: noqa: ARG001 - texts share one signature
"""Digests of strings as lower-case hexadecimal text, once per distinct string."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

from flowrun.core.types import STRING, DataType, char
from flowrun.errors import DataError
from flowrun.functions.contract import Argument, Datum, ScalarFunction
from flowrun.functions.rules import BYTES_OR_TEXT, INTEGER, Parameter, Rule
from flowrun.functions.spark_text import Template, integer_literal
from flowrun.functions.vectors import Distinct, map_distinct

SHA2_LENGTHS = (224, 256, 384, 512)


def _octets(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else value


def _md5(value: str | bytes) -> str:
    return hashlib.md5(_octets(value), usedforsecurity=False).hexdigest()


def _sha1(value: str | bytes) -> str:
    return hashlib.sha1(_octets(value), usedforsecurity=False).hexdigest()


def _sha224(value: str | bytes) -> str:
    return hashlib.sha224(_octets(value)).hexdigest()


def _sha256(value: str | bytes) -> str:
    return hashlib.sha256(_octets(value)).hexdigest()


def _sha384(value: str | bytes) -> str:
    return hashlib.sha384(_octets(value)).hexdigest()


def _sha512(value: str | bytes) -> str:
    return hashlib.sha512(_octets(value)).hexdigest()


_SHA2 = dict(zip(SHA2_LENGTHS, (_sha224, _sha256, _sha384, _sha512), strict=True))


def _length_problem(value: object) -> str | None:
    if value is None or value in SHA2_LENGTHS:
        return None
    return f"the hash length must be one of {', '.join(map(str, SHA2_LENGTHS))}, {value} given"


def sha2(value: str | bytes, bits: int) -> str:
    """The SHA-2 digest of the given length in bits.

    >>> sha2("", 224)[:8]
    'd14a028c'
    """
    if (problem := _length_problem(bits)) is not None:
        raise DataError(f"SHA2: {problem}")
    return _SHA2[bits](value)


def _sha2_kernel(arguments: Sequence[Datum], rows: int, result: DataType) -> Datum:
    return map_distinct(sha2, arguments, rows, result.arrow)


def _sha2_result(arguments: Sequence[Argument]) -> DataType:
    bits = arguments[1].literal
    return char(bits // 4) if bits in SHA2_LENGTHS else STRING


def _digest(name: str, digits: int, function: Callable[[Any], str], title: str, spark: str | None) -> ScalarFunction:
    usage = f"{name}(string)"
    return ScalarFunction(
        name,
        Rule(usage, char(digits), (BYTES_OR_TEXT,)),
        Distinct(function),
        usage,
        f"The {title} digest as {digits} hexadecimal digits.",
        None if spark is None else Template(spark),
    )


def _spark_sha2(texts: Sequence[str], types: Sequence[DataType], result: DataType) -> str | None:
    bits = integer_literal(texts[1])
    return None if bits is None else f"sha2(CAST({texts[0]} AS BINARY), {bits})"


HASHES = (
    _digest("MD5", 32, _md5, "MD5", "md5(CAST({0} AS BINARY))"),
    _digest("SHA1", 40, _sha1, "SHA-1", "sha1(CAST({0} AS BINARY))"),
    _digest("SHA224", 56, _sha224, "SHA-224", "sha2(CAST({0} AS BINARY), 224)"),
    _digest("SHA256", 64, _sha256, "SHA-256", "sha2(CAST({0} AS BINARY), 256)"),
    _digest("SHA384", 96, _sha384, "SHA-384", "sha2(CAST({0} AS BINARY), 384)"),
    _digest("SHA512", 128, _sha512, "SHA-512", "sha2(CAST({0} AS BINARY), 512)"),
    ScalarFunction(
        "SHA2",
        Rule(
            "SHA2(string, length)",
            _sha2_result,
            (BYTES_OR_TEXT, Parameter("an INT", INTEGER.resolve, INTEGER.null_type, check=_length_problem)),
        ),
        _sha2_kernel,
        "SHA2(string, length)",
        "The SHA-2 digest of 224, 256, 384 or 512 bits.",
        _spark_sha2,
        fallible=True,
    ),
)
"""Digest functions."""
