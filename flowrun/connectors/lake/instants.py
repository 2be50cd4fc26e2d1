"""Points in time in options of lake tables: ms since the epoch, or a date and time."""

from __future__ import annotations

from flowrun.core.options import Options
from flowrun.core.units import parse_instant_ms
from flowrun.errors import OptionError


def instant_option(options: Options, name: str) -> int | None:
    """The value of an option in ms since the epoch; None: it was not given. A time without a zone is one in UTC.

    >>> instant_option(Options({"t": "2024-03-01 10:00:00"}), "t"), instant_option(Options({"t": "5"}), "t")
    (1709287200000, 5)

    Raises:
        OptionError: it is no point in time.
    """
    given = options.get(name)
    if given is None:
        return None
    try:
        return parse_instant_ms(str(given))
    except ValueError:
        raise OptionError(
            name,
            f"option '{name}' expects a point in time, got '{str(given).strip()}'",
            hint="for example 2024-03-01T10:00:00Z",
        ) from None
