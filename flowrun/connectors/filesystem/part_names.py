"""Names of part files.

Visible ones say which run wrote a file before which checkpoint, as a restore from an older one must know it; hidden ones whose they are.
"""

from __future__ import annotations

import re

from flowrun.api.sink import WriterContext
from flowrun.core.record import record

_OWNER_DIGITS = 12
_TOLD = re.compile(r"part-([0-9a-f]{12})-(\d+)-[0-9a-f]{12}-\d+-\d+\.[^/]*")


@record
class PartOrigin:
    """Where a part file comes from: the first digits of its owner (`WriterContext.owner`), and the next checkpoint at that time."""

    owner: str
    checkpoint_id: int


def part_stem(context: WriterContext, count: int) -> str:
    """The name of the part number `count` of a writer, without its extension."""
    own = f"{context.attempt}-{context.subtask}-{count}"
    if context.next_checkpoint_id is None:
        return f"part-{own}"
    return f"part-{context.owner[:_OWNER_DIGITS]}-{context.next_checkpoint_id()}-{own}"


def part_origin(file_name: str) -> PartOrigin | None:
    """The origin that the name of a visible file says; None: the file was not written by a stream.

    >>> part_origin("part-0f3a5c7e9b1d-17-5d41402abc4b-0-2.json")
    PartOrigin(owner='0f3a5c7e9b1d', checkpoint_id=17)
    >>> part_origin("part-out-all-0e8e946088-r1-0-0.json") is None
    True
    """
    found = _TOLD.fullmatch(file_name)
    return None if found is None else PartOrigin(found[1], int(found[2]))


def temporary_ending(owner: str) -> str:
    """The end of the names of parts that are not visible yet.

    >>> temporary_ending("8f0e"), temporary_ending("")
    ('.8f0e.inprogress', '.inprogress')
    """
    return f".{owner}.inprogress" if owner else ".inprogress"


def without_extension(path: str) -> str:
    """A path up to the first dot of its file's name.

    >>> without_extension("out.d/part-0.json.gz")
    'out.d/part-0'
    """
    folder, slash, name = path.rpartition("/")
    return folder + slash + name.partition(".")[0]


def visible_stem(hidden: str) -> str:
    """A path without the dot that hides its file.

    >>> visible_stem("out/.part-0")
    'out/part-0'
    """
    folder, slash, name = hidden.rpartition("/")
    return folder + slash + name.removeprefix(".")
