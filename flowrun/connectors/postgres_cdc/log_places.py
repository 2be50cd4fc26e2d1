"""Places in the write-ahead log (LSN), as numbers and as PostgreSQL writes them."""

from __future__ import annotations


def parse_lsn(text: str) -> int:
    """The number of a place in the log.

    >>> parse_lsn("1/A")
    4294967306
    """
    high, _, low = text.partition("/")
    return (int(high, 16) << 32) + int(low, 16)


def format_lsn(lsn: int) -> str:
    """As PostgreSQL writes it.

    >>> format_lsn(4294967306)
    '1/A'
    """
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"
