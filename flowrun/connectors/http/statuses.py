"""Which status codes of answers mean what, in the notation of Apache Flink's HTTP connector: `2XX,404,!204`."""

from __future__ import annotations

import re

from flowrun.core.options import Options
from flowrun.core.record import record
from flowrun.errors import OptionError

_PART = re.compile(r"(!?)([1-5](?:XX|\d\d))", re.IGNORECASE)


@record
class StatusCodes:
    """Which answers are good, which ones are asked for again, and which ones are taken for done though nothing came of them.

    An answer that is in none of them fails the job.
    """

    good: frozenset[int]
    retried: frozenset[int]
    ignored: frozenset[int]


def parse_codes(option: str, text: str) -> frozenset[int]:
    """The codes of a list: single ones, groups (`5XX`), and with `!` those that are not meant.

    Raises:
        OptionError: a part of it is neither.

    >>> sorted(parse_codes("retry-codes", "429, 500, 501, !501"))
    [429, 500]
    >>> len(parse_codes("success-codes", "2XX,!204"))
    99
    """
    wanted: set[int] = set()
    excluded: set[int] = set()
    for part in filter(None, (p.strip() for p in text.split(","))):
        found = _PART.fullmatch(part)
        if found is None:
            raise OptionError(
                option,
                f"option '{option}' has '{part}', which is no status code",
                hint="for example 2XX,404,!204: codes, groups of a hundred, and with ! those that are not meant",
            )
        digits = found[2].upper()
        first = int(digits[0]) * 100
        codes = range(first, first + 100) if digits.endswith("XX") else (int(digits),)
        (excluded if found[1] else wanted).update(codes)
    return frozenset(wanted - excluded)


def statuses_of(options: Options) -> StatusCodes:
    """The codes that options name.

    Raises:
        OptionError: a list is malformed, or a code is in two of them.
    """
    names = ("success-codes", "retry-codes", "ignored-response-codes")
    good, retried, ignored = (parse_codes(name, str(options.get(name) or "")) for name in names)
    for one, other, option in (
        (good, retried, "retry-codes"),
        (good, ignored, "ignored-response-codes"),
        (retried, ignored, "ignored-response-codes"),
    ):
        if one & other:
            raise OptionError(option, f"option '{option}' has {min(one & other)}, which another list of codes has, too")
    return StatusCodes(good, retried, ignored)
