"""`--from` and `--to`: a range of event times as users write it."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

if TYPE_CHECKING:
    from flowrun.spark.context import TimeRange

F = TypeVar("F", bound=Callable[..., Any])

_MS = re.compile(r"-?\d{5,}")
_FORMS = "write 2024-01-31, 2024-01-31T10:00:00 (UTC), 2024-01-31T10:00:00+02:00, or milliseconds since 1970"


def epoch_ms(text: str, option: str) -> int:
    """A moment as users write it, as ms since the epoch; without a zone it is in UTC.

    Raises:
        click.BadParameter: the text is no time.

    >>> epoch_ms("2024-01-31", "--to"), epoch_ms("2024-01-31T02:00+02:00", "--to"), epoch_ms("1706659200000", "--to")
    (1706659200000, 1706659200000, 1706659200000)
    """
    given = text.strip()
    if _MS.fullmatch(given):
        return int(given)
    try:
        moment = datetime.fromisoformat(given)
    except ValueError:
        raise click.BadParameter(f"'{text}' is no time: {_FORMS}", param_hint=option) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1000 + since.microseconds // 1000


def time_range(start: str | None, stop: str | None) -> TimeRange:
    """The range of event times from `start` up to, but not, `stop`; None: there is no such bound.

    Raises:
        click.BadParameter: a bound is no time, or the range is empty.
    """
    from flowrun.spark.context import TimeRange

    first = None if start is None else epoch_ms(start, "--from")
    last = None if stop is None else epoch_ms(stop, "--to")
    if first is not None and last is not None and first >= last:
        what = "the same moment as" if first == last else "later than"
        raise click.BadParameter(f"'{start}' is {what} --to '{stop}': the range is empty", param_hint="--from")
    return TimeRange(first, last)


def range_options(*, needs_stop: bool) -> Callable[[F], F]:
    """A decorator that adds --from and --to; the command gets them as one argument `period` (a `TimeRange`)."""

    def decorate(command: F) -> F:
        @functools.wraps(command)
        def with_period(*args: Any, start: str | None, stop: str | None, **rest: Any) -> Any:
            return command(*args, period=time_range(start, stop), **rest)

        decorated: Any = with_period
        to = "End of the range of event times; not part of it."
        for add in (
            click.option("--to", "stop", metavar="T", required=needs_stop, help=to),
            click.option("--from", "start", metavar="T", help="Beginning of the range; by default there is none."),
        ):
            decorated = add(decorated)
        return cast("F", decorated)

    return decorate
