# ruff: noqa: ARG001 - kernels share one signature
"""Functions between strings and codes: characters, hexadecimal, Base64, character sets, URLs, UUIDs."""

from __future__ import annotations

import base64
import binascii
import os
import re
from collections.abc import Sequence
from functools import lru_cache
from urllib.parse import quote_plus, unquote_to_bytes

import numpy as np
import pyarrow as pa

from flowrun.core.types import BYTES, INT, STRING, DataType
from flowrun.errors import DataError
from flowrun.functions.contract import Argument, Datum, ScalarFunction
from flowrun.functions.rules import ANYTHING, BINARY, BYTES_OR_TEXT, LONG, TEXT, OneOf, Parameter, Rule, word
from flowrun.functions.spark_text import Function, Template
from flowrun.functions.strings import spark_texts as texts
from flowrun.functions.strings.urls import parse_url_text
from flowrun.functions.vectors import Distinct, strings_from_matrix

CHARSETS = ("US-ASCII", "ISO-8859-1", "UTF-8", "UTF-16BE", "UTF-16LE", "UTF-16")
URL_PARTS = ("HOST", "PATH", "QUERY", "REF", "PROTOCOL", "AUTHORITY", "FILE", "USERINFO")
_LONG_MASK = 0xFFFFFFFFFFFFFFFF
_URL = re.compile(r"(?is)\s*(https?|ftp|file|jar|mailto):(?://([^/?#]*))?([^?#]*)(?:\?([^#]*))?(?:#(.*))?")
_HEX_DIGITS = np.frombuffer(b"0123456789abcdef", np.uint8)


def first_byte(text: str) -> int:
    """The first byte of a text in UTF-8 as a signed number, as Flink's ASCII gives it; 0 for an empty text.

    >>> first_byte("abc"), first_byte("Ü"), first_byte("")
    (97, -61, 0)
    """
    if not text:
        return 0
    code = text[0].encode()[0]
    return code - 256 if code > 127 else code


def character(code: int) -> str:
    """The character of a code modulo 256; empty for a negative code.

    >>> character(97), character(353), character(-1)
    ('a', 'a', '')
    """
    return "" if code < 0 else chr(code & 0xFF)


def hexadecimal(value: int | str | bytes) -> str:
    """Upper-case hexadecimal digits of an integer (64-bit two's complement) or of a string's bytes.

    >>> hexadecimal(20), hexadecimal(-1), hexadecimal("hello")
    ('14', 'FFFFFFFFFFFFFFFF', '68656C6C6F')
    """
    if isinstance(value, int):
        return format(value & _LONG_MASK, "X")
    return (value.encode() if isinstance(value, str) else value).hex().upper()


def unhex(digits: str | bytes) -> bytes | None:
    r"""The bytes of hexadecimal digits; an odd first digit stands alone; NULL if there is anything else.

    >>> unhex("466C696E6B"), unhex("F"), unhex("xy")
    (b'Flink', b'\x0f', None)
    """
    text = digits if isinstance(digits, str) else digits.decode("latin-1")
    if re.fullmatch("[0-9a-fA-F]*", text) is None:
        return None
    return bytes.fromhex(text if len(text) % 2 == 0 else "0" + text)


def _binary_digits(value: int) -> str:
    return format(value & _LONG_MASK, "b")


def _to_base64(value: str | bytes) -> str:
    return base64.b64encode(value.encode() if isinstance(value, str) else value).decode()


def _from_base64(value: str | bytes) -> str:
    try:
        return base64.b64decode(value, validate=True).decode()
    except (binascii.Error, ValueError) as error:
        shown = value if isinstance(value, str) else value.decode("latin-1")
        raise DataError(f"FROM_BASE64: '{shown[:60]}' is not Base64 of UTF-8 text: {error}") from error


def encode(text: str, charset: str) -> bytes:
    r"""A text in a character set; what it cannot express becomes `?`.

    >>> encode("ü", "UTF-16"), encode("ü", "US-ASCII")
    (b'\xfe\xff\x00\xfc', b'?')
    """
    name = _charset(charset)
    if name == "UTF-16":
        return (
            b"\xfe\xff" + text.encode("utf-16-be") if text else b""
        )  # Java marks the byte order of nothing with nothing
    return text.encode(name, errors="replace")


def decode(data: bytes, charset: str) -> str:
    r"""The text of bytes in a character set; malformed parts become U+FFFD.

    >>> decode(b"\xc3\xbc", "UTF-8")
    'ü'
    """
    name = _charset(charset)
    if name == "UTF-16" and data[:2] not in (b"\xfe\xff", b"\xff\xfe"):
        name = "UTF-16BE"
    return data.decode(name, errors="replace")


def _charset(name: str) -> str:
    if name.upper() not in CHARSETS:
        raise DataError(f"'{name}' is not one of the character sets {', '.join(CHARSETS)}")
    return name.upper()


def url_encode(text: str) -> str:
    """A text as `application/x-www-form-urlencoded` in UTF-8.

    >>> url_encode("a b~ü*")
    'a+b%7E%C3%BC*'
    """
    return quote_plus(text, safe="*").replace("~", "%7E")


def url_decode(text: str) -> str | None:
    """The text behind `application/x-www-form-urlencoded`; NULL if a `%` is not followed by two hexadecimal digits.

    >>> url_decode("a+b%C3%BC"), url_decode("50%")
    ('a bü', None)
    """
    if re.search("%(?![0-9a-fA-F]{2})", text):
        return None
    return unquote_to_bytes(text.replace("+", " ")).decode(errors="replace")


@lru_cache(maxsize=4096)
def _url_parts(url: str) -> dict[str, str | None] | None:
    match = _URL.fullmatch(url)
    if match is None:
        return None
    protocol, authority, path, query, reference = match.groups()
    user, at, address = (authority or "").rpartition("@")
    host = address if address.startswith("[") and address.endswith("]") else re.sub(r":\d*$", "", address)
    return {
        "PROTOCOL": protocol.lower(),
        "AUTHORITY": authority,
        "USERINFO": user if at else None,
        "HOST": host,
        "PATH": path,
        "QUERY": query,
        "FILE": path if query is None else f"{path}?{query}",
        "REF": reference,
    }


def parse_url(url: str, part: str, key: str | None = None) -> str | None:
    """A part of a URL, or the value of one key of its query; NULL if it is not a URL or has no such part.

    >>> parse_url("http://me@ex.org:80/p?k=v&q=1#r", "HOST"), parse_url("http://ex.org/p?k=v&q=1", "QUERY", "q")
    ('ex.org', '1')
    """
    parts = _url_parts(url)
    if parts is None:
        return None
    found = parts.get(part)
    if key is None or found is None:
        return found
    if part != "QUERY":
        return None
    match = re.search(f"(?:&|^){re.escape(key)}=([^&]*)", found)
    return match[1] if match else None


def random_uuids(rows: int) -> pa.StringArray:
    """`rows` random (version 4) UUIDs from the system's cryptographic generator."""
    octets = np.frombuffer(os.urandom(16 * rows), np.uint8).reshape(rows, 16).copy()
    octets[:, 6] = (octets[:, 6] & 0x0F) | 0x40
    octets[:, 8] = (octets[:, 8] & 0x3F) | 0x80
    digits = np.empty((rows, 32), np.uint8)
    digits[:, 0::2] = _HEX_DIGITS[octets >> 4]
    digits[:, 1::2] = _HEX_DIGITS[octets & 15]
    text = np.full((rows, 36), ord("-"), np.uint8)
    text[:, [i for i in range(36) if i not in (8, 13, 18, 23)]] = digits
    return strings_from_matrix(text)


def _uuid(arguments: Sequence[Datum], rows: int, result: DataType) -> Datum:
    return random_uuids(rows)


def _integer_or_string(arguments: Sequence[Argument]) -> str | None:
    given = arguments[0].type
    ok = given.is_integer or given.is_character or given.is_binary
    return None if ok else f"the argument must be an integer or a string, {given} given"


_CHARSET = Parameter("a character set", TEXT.resolve, STRING, check=OneOf(CHARSETS))

STRING_CODES = (
    ScalarFunction(
        "ASCII", Rule("ASCII(string)", INT, (TEXT,)), Distinct(first_byte), "ASCII(string)",
        "The code of the first character (the first UTF-8 byte as a signed number); 0 for an empty string.",
        Template(
            "CASE WHEN ascii({0}) < 128 THEN ascii({0})"
            " ELSE CAST(conv(hex(substring(CAST({0} AS BINARY), 1, 1)), 16, 10) AS INT) - 256 END"
        ),
    ),
    ScalarFunction(
        "CHR", Rule("CHR(code)", STRING, (LONG,)), Distinct(character), "CHR(code)",
        "The character of a code modulo 256; empty for a negative code.", Function("chr"),
    ),
    ScalarFunction(
        "HEX", Rule("HEX(value)", STRING, (ANYTHING,), check=_integer_or_string), Distinct(hexadecimal), "HEX(value)",
        "Upper-case hexadecimal digits of an integer or of a string's bytes.", Function("hex"),
    ),
    ScalarFunction(
        "UNHEX", Rule("UNHEX(string)", BYTES, (TEXT,)), Distinct(unhex), "UNHEX(string)",
        "The bytes of hexadecimal digits; NULL if there is anything else.", Function("unhex"),
    ),
    ScalarFunction(
        "BIN", Rule("BIN(integer)", STRING, (LONG,)), Distinct(_binary_digits), "BIN(integer)",
        "The binary digits of an integer.", Function("bin"),
    ),
    ScalarFunction(
        "TO_BASE64", Rule("TO_BASE64(string)", STRING, (BYTES_OR_TEXT,)), Distinct(_to_base64), "TO_BASE64(string)",
        "Base64 of the string's bytes.", Template("replace(base64(CAST({0} AS BINARY)), '\\r\\n', '')"),
    ),
    ScalarFunction(
        "FROM_BASE64", Rule("FROM_BASE64(string)", STRING, (BYTES_OR_TEXT,)), Distinct(_from_base64),
        "FROM_BASE64(string)", "The text behind Base64; an error if it is not that.", texts.from_base64_text, fallible=True,
    ),
    ScalarFunction(
        "ENCODE", Rule("ENCODE(string, charset)", BYTES, (TEXT, _CHARSET)), Distinct(encode),
        "ENCODE(string, charset)", "The string's bytes in a character set.", texts.encode_text, fallible=True,
    ),
    ScalarFunction(
        "DECODE", Rule("DECODE(binary, charset)", STRING, (BINARY, _CHARSET)), Distinct(decode),
        "DECODE(binary, charset)", "The text of bytes in a character set.", texts.decode_text, fallible=True,
    ),
    ScalarFunction(
        "URL_ENCODE", Rule("URL_ENCODE(string)", STRING, (TEXT,)), Distinct(url_encode), "URL_ENCODE(string)",
        "The string as application/x-www-form-urlencoded.", Function("url_encode"),
    ),
    ScalarFunction(
        "URL_DECODE", Rule("URL_DECODE(string)", STRING, (TEXT,)), Distinct(url_decode), "URL_DECODE(string)",
        "The text behind application/x-www-form-urlencoded; NULL if it is malformed.",
        Template("CASE WHEN NOT {0} RLIKE '%(?![0-9a-fA-F]{{2}})' THEN url_decode({0}) END"),
    ),
    ScalarFunction(
        "PARSE_URL", Rule("PARSE_URL(url, part[, key])", STRING, (TEXT, word(*URL_PARTS)), (TEXT,)),
        Distinct(parse_url), "PARSE_URL(url, part[, key])",
        "A part of a URL: HOST, PATH, QUERY (or one key of it), REF, PROTOCOL, AUTHORITY, FILE or USERINFO.", parse_url_text,
    ),
    ScalarFunction(
        "UUID", Rule("UUID()", STRING), _uuid, "UUID()", "A random (version 4) UUID for each row.",
        Function("uuid"), deterministic=False,
    ),
)  # fmt: skip
"""Functions between strings and codes."""
