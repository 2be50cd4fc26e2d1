"""Options of a lookup join, which a looked-up table has besides those of its connector. Names are Apache Flink's."""

from __future__ import annotations

from enum import Enum

from flowrun.core.options import Option, Options, OptionType
from flowrun.core.record import record
from flowrun.errors import OptionError

RELOAD_INTERVAL = "lookup.full-cache.periodic-reload.interval"
_MAX_ROWS = "lookup.partial-cache.max-rows"
_AFTER_WRITE = "lookup.partial-cache.expire-after-write"
_AFTER_ACCESS = "lookup.partial-cache.expire-after-access"
_CACHE_MISSING = "lookup.partial-cache.cache-missing-key"

LOOKUP_JOIN_OPTIONS = (
    Option(
        "lookup.cache",
        OptionType.ENUM,
        "What is remembered of the table: nothing, the rows of some keys, or all that was ever asked for (the whole table, where "
        "the connector keeps it in memory).",
        default="none",
        choices=("none", "partial", "full"),
    ),
    Option(
        _MAX_ROWS, OptionType.INT, "Keys that a partial cache holds; those not used for longest go first.", minimum=1
    ),
    Option(_AFTER_WRITE, OptionType.DURATION, "How long after it was read a key stays in a partial cache.", minimum=1),
    Option(
        _AFTER_ACCESS, OptionType.DURATION, "How long after it was last used a key stays in a partial cache.", minimum=1
    ),
    Option(
        _CACHE_MISSING, OptionType.BOOLEAN, "Whether a partial cache remembers that a key has no row.", default=True
    ),
    Option(
        RELOAD_INTERVAL,
        OptionType.DURATION,
        "How old what a full cache holds may get; without it it is kept for ever.",
        minimum=1,
    ),
    Option(
        "lookup.max-retries",
        OptionType.INT,
        "How often a lookup that failed for a passing reason is tried again.",
        default=3,
        minimum=0,
    ),
    Option(
        "lookup.async",
        OptionType.BOOLEAN,
        "Whether several lookups are under way at a time, over connections of their own; results keep the order of the rows.",
        default=False,
    ),
)


class CacheMode(Enum):
    """What a lookup join remembers: nothing, some keys, or every key."""

    NONE = "none"
    PARTIAL = "partial"
    FULL = "full"


@record
class LookupSettings:
    """How a table is asked.

    Attributes:
        cache: what is remembered.
        max_keys: most keys in the cache; None: any number.
        expire_after_write_ms: how long a key is remembered after it was read; None: for ever.
        expire_after_access_ms: how long after its last use.
        cache_missing: whether it is remembered that a key has no row.
        max_retries: further attempts after a retryable failure.
        concurrent: whether several lookups may be under way at a time.
    """

    cache: CacheMode = CacheMode.NONE
    max_keys: int | None = None
    expire_after_write_ms: int | None = None
    expire_after_access_ms: int | None = None
    cache_missing: bool = True
    max_retries: int = 3
    concurrent: bool = False


def lookup_settings(options: Options) -> LookupSettings:
    """The settings that options stand for.

    Raises:
        OptionError: a partial cache without any limit, or an option of another kind of cache.

    >>> from flowrun.core.options import parse_options
    >>> given = {"lookup.cache": "PARTIAL", "lookup.partial-cache.max-rows": "100"}
    >>> lookup_settings(parse_options(LOOKUP_JOIN_OPTIONS, given, "table 't'")[0]).max_keys
    100
    """
    mode = CacheMode(options.text("lookup.cache"))
    limits = (_MAX_ROWS, _AFTER_WRITE, _AFTER_ACCESS)
    given = [name for name in limits if options.get(name) is not None]
    if mode is CacheMode.PARTIAL and not given:
        raise OptionError(
            "lookup.cache",
            "a partial cache would grow without end",
            hint="set one of " + ", ".join(limits),
        )
    if mode is not CacheMode.PARTIAL and given:
        raise OptionError(
            given[0],
            f"option '{given[0]}' is for 'lookup.cache' = 'PARTIAL', which is '{mode.value.upper()}'",
            hint="set 'lookup.cache' = 'PARTIAL', or leave the option out",
        )
    partial = mode is CacheMode.PARTIAL
    after_write = options.get(_AFTER_WRITE if partial else RELOAD_INTERVAL)
    after_access = options.get(_AFTER_ACCESS)
    max_keys = options.get(_MAX_ROWS)
    return LookupSettings(
        cache=mode,
        max_keys=None if max_keys is None else int(max_keys),
        expire_after_write_ms=None if after_write is None else int(after_write),
        expire_after_access_ms=None if after_access is None else int(after_access),
        cache_missing=not partial or options.flag(_CACHE_MISSING),
        max_retries=options.integer("lookup.max-retries"),
        concurrent=options.flag("lookup.async"),
    )
