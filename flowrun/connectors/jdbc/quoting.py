"""Names and texts as databases read them in a statement: quoted as the SQL standard says."""

from __future__ import annotations

import re

_PART = re.compile(r'"((?:[^"]|"")*)"|([^".]+)')


def literal(text: str) -> str:
    r"""A text as a literal, whatever is in it, where a backslash stands for itself.

    >>> literal("it's")
    "'it''s'"
    """
    return "'" + text.replace("'", "''") + "'"


def identifier(name: str) -> str:
    """A name as itself.

    >>> identifier('a"b')
    '"a""b"'
    """
    return '"' + name.replace('"', '""') + '"'


def name_parts(name: str) -> list[str]:
    """The parts of a name that has its schema before a dot; a part in double quotes may hold dots.

    >>> name_parts('shop.orders'), name_parts('"a.b"."c""d"')
    (['shop', 'orders'], ['a.b', 'c"d'])
    """
    return [plain or quoted.replace('""', '"') for quoted, plain in _PART.findall(name)]
