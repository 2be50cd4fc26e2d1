"""A word that may come next, and what people are told of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from flowrun.core.record import record

LONGEST = 80


@record
class Proposal:
    """A word that may stand at a place.

    Attributes:
        text: to be written.
        kind: `keyword`, `catalog`, `database`, `table`, `column`, `function`, `option`, `key` or `value`.
        begun: how many code points of it stand before the place already.
        about: one line about it.
    """

    text: str
    kind: str
    begun: int = 0
    about: str = ""


def beginning_with(begun: str, words: Iterable[tuple[str, str]], kind: str) -> Iterator[Proposal]:
    """The words, with a line about each, that begin with what stands there, whatever their case and quotes.

    >>> [p.text for p in beginning_with("us", [("`User id`", ""), ("amount", "")], "column")]
    ['`User id`']
    """
    wanted = begun.strip("`").casefold()
    for word, about in words:
        if word.strip("`").casefold().startswith(wanted) and len(word) < LONGEST:
            yield Proposal(word, kind, len(begun), about)
