"""Parts of a step that SQL has words for, as queries: one function a part, from its checked section to the text that says the same."""

from __future__ import annotations

from collections.abc import Sequence

from flowrun.errors import InternalError, Location
from flowrun.frontend.trees.nodes import YamlScalar
from flowrun.frontend.trees.spec import Section
from flowrun.frontend.yaml.queries.queries import SqlComposer, StepSql, quoted
from flowrun.plan import windows

_ELEMENTS = "unnest of the step"
"""Alias of the elements of a collection: no name of a step has spaces."""
WINDOWED = "rows in windows"
"""The step's rows as those of its windows, by no name that a step may have: subqueries read the rows as they are."""
SET_PARTS = ("intersect", "except")
_LEFT_ONLY = {"semi": "EXISTS", "anti": "NOT EXISTS"}


def plain_query(scalar: YamlScalar) -> StepSql:
    """The query that a step holds."""
    return SqlComposer(scalar.location).scalar(scalar).text()


def selected(
    section: Section, entries: Sequence[YamlScalar], left: str, at: Location, *, condition: YamlScalar | None
) -> StepSql:
    """`join`, `unnest` and `filter` (`condition`) over the input `left`, and `entries` of `select`: all columns if there are none."""
    join, unnest = section.section("join"), section.section("unnest")
    composer = SqlComposer(at).words("SELECT ")
    if entries:
        composer.listed(entries)
    else:
        composer.words("*")
    composer.words(" FROM ").name(left, section.value_at("from"))
    conditions = _joined(composer, join) if join is not None else None
    if unnest is not None:
        _unnested(composer, unnest)
    if conditions is not None or condition is not None:
        composer.words(" WHERE ")
    if conditions is not None and join is not None:
        _exists(composer, join, conditions)
    if condition is not None:
        composer.words(" AND (" if conditions is not None else "(").scalar(condition).words(")")
    return composer.text()


def filtered(condition: YamlScalar | None, left: str, at: Location) -> StepSql:
    """The rows `left` for which a condition is true."""
    composer = SqlComposer(at).words("SELECT * FROM ").name(left)
    return composer.text() if condition is None else composer.words(" WHERE (").scalar(condition).words(")").text()


def listed(entries: Sequence[YamlScalar], left: str, at: Location) -> StepSql:
    """`entries` over the rows `left`."""
    return SqlComposer(at).words("SELECT ").listed(entries).words(" FROM ", at).name(left).text()


def _joined(composer: SqlComposer, join: Section) -> str | None:
    """Add the second input to FROM; gives the test of WHERE that does it instead, for joins with columns of the left side only."""
    kind, condition = join.text("type") or "inner", join.scalar("on")
    if kind in _LEFT_ONLY:
        return _LEFT_ONLY[kind]
    composer.words(f" {kind.upper()} JOIN ", join.location)
    _other(composer, join)
    assert condition is not None
    composer.words(" ON ", join.at("on")).scalar(condition)
    return None


def _other(composer: SqlComposer, join: Section) -> None:
    """The second input with its alias, and the time of its versions."""
    other, alias, as_of = join.scalar("with"), join.scalar("as"), join.scalar("as_of")
    assert other is not None
    composer.name(other.text, other.location)
    if as_of is not None:
        composer.words(" FOR SYSTEM_TIME AS OF ", join.at("as_of")).scalar(as_of)
    elif join.text("kind") == "lookup":
        composer.words(" FOR SYSTEM_TIME AS OF PROCTIME()", join.value_at("kind"))
    if alias is not None:
        composer.words(" AS ").name(alias.text, alias.location)


def _exists(composer: SqlComposer, join: Section, test: str) -> None:
    condition = join.scalar("on")
    assert condition is not None
    composer.words(f"{test} (SELECT 1 FROM ", join.location)
    _other(composer, join)
    composer.words(" WHERE ", join.at("on")).scalar(condition).words(")")


def _unnested(composer: SqlComposer, unnest: Section) -> None:
    outer = unnest.flag("outer") is True
    column, ordinality = unnest.scalar("column"), unnest.scalar("ordinality")
    assert column is not None
    composer.words(" LEFT JOIN UNNEST(" if outer else " CROSS JOIN UNNEST(", unnest.location)
    composer.scalar(column).words(")", unnest.location)
    names = list(unnest.scalars("as"))
    if ordinality is not None:
        composer.words(" WITH ORDINALITY", ordinality.location)
        names.append(ordinality)
    composer.words(" AS ", unnest.at("as")).name(_ELEMENTS, unnest.value_at("as")).words("(", unnest.value_at("as"))
    for index, name in enumerate(names):
        composer.words(", " if index else "", name.location).name(name.text, name.location)
    composer.words(")" + (" ON TRUE" if outer else ""), unnest.value_at("as"))


def combined(part: str, names: Sequence[YamlScalar], at: Location) -> StepSql:
    """The inputs of `intersect`, `except` and the like, one after the other."""
    composer = SqlComposer(at)
    for index, name in enumerate(names):
        composer.words(f" {part.upper()} " if index else "", name.location)
        composer.words("SELECT * FROM ", name.location).name(name.text, name.location)
    return composer.text()


def matched(scalar: YamlScalar, left: str) -> StepSql:
    """`match_recognize` over the rows `left`."""
    composer = SqlComposer(scalar.location).words("SELECT * FROM ").name(left)
    return composer.words(" MATCH_RECOGNIZE (", scalar.location).scalar(scalar).words(")", scalar.location).text()


def with_window_functions(section: Section, left: str) -> StepSql:
    """The rows `left` with the columns of `over`."""
    composer = SqlComposer(section.value_at("over")).words("SELECT *, ").listed(section.scalars("over"))
    return composer.words(" FROM ").name(left).text()


def grouped(
    section: Section, entries: Sequence[YamlScalar], keys: Sequence[str], left: str, window: Sequence[str] | None = None
) -> StepSql:
    """`entries` of `aggregate` behind the columns `keys` of the rows `left`, grouped by these.

    With the columns `window` (none if it has no bounds) it reads `WINDOWED`, groups by these as well, and gives groups even if there are
    neither keys nor aggregates.
    """
    names = ", ".join(quoted(k) for k in keys)
    composer = SqlComposer(section.value_at("aggregate")).words("SELECT ")
    composer.words(names + (", " if keys and entries else "")).listed(entries)
    composer.words(" FROM ", section.at("aggregate"))
    if window is not None:
        composer.name(WINDOWED).words(" AS ")
    composer.name(left)
    groups = ", ".join(quoted(k) for k in dict.fromkeys((*keys, *(window or ()))))
    if groups or window is not None:
        composer.words(f" GROUP BY {groups or '()'}", section.value_at("key_by"))
    return composer.text()


def windowed(window: windows.WindowSpec, time: str, keys: Sequence[str], left: str, at: Location) -> StepSql:
    """The rows `left` with the bounds of the windows that they are in by the column `time`; sessions are those of `keys`."""
    composer = SqlComposer(at).words("SELECT * FROM ")
    lengths: tuple[int, ...]
    match window:
        case windows.TumblingWindow(size_ms=size, offset_ms=offset):
            function, lengths = "TUMBLE", (size, offset)
        case windows.SlidingWindow(size_ms=size, slide_ms=slide, offset_ms=offset):
            function, lengths = "HOP", (slide, size, offset)
        case windows.CumulativeWindow(size_ms=size, step_ms=step, offset_ms=offset):
            function, lengths = "CUMULATE", (step, size, offset)
        case windows.SessionWindow(gap_ms=gap):
            function, lengths = "SESSION", (gap,)
        case windows.CountWindow() | windows.GlobalWindow():
            raise InternalError(f"{window} has no bounds")
    partition = f" PARTITION BY ({', '.join(quoted(k) for k in keys)})" if keys else ""
    composer.words(f"TABLE({function}(TABLE {quoted(left)}{partition}, DESCRIPTOR({quoted(time)})")
    return composer.words("".join(f", {_interval(length)}" for length in lengths) + "))").text()


def _interval(length_ms: int) -> str:
    """An interval of days to seconds.

    >>> _interval(-1500)
    "INTERVAL -'0 00:00:01.500' DAY(9) TO SECOND(3)"
    """
    sign, rest = "-" if length_ms < 0 else "", abs(length_ms)
    days, rest = divmod(rest, 86_400_000)
    hours, rest = divmod(rest, 3_600_000)
    minutes, rest = divmod(rest, 60_000)
    text = f"{days} {hours:02d}:{minutes:02d}:{rest // 1000:02d}.{rest % 1000:03d}"
    return f"INTERVAL {sign}'{text}' DAY(9) TO SECOND(3)"


def distinct(section: Section, left: str) -> StepSql:
    """Each row once."""
    return SqlComposer(section.at("distinct")).words("SELECT DISTINCT * FROM ").name(left).text()


def deduplicated(
    section: Section, columns: Sequence[str], keys: Sequence[str], order: YamlScalar | str, left: str
) -> StepSql:
    """One row for each of the columns `keys`, the first or last by `order`."""
    deduplicate = section.section("deduplicate")
    assert deduplicate is not None
    rank = _free("row_number", columns)
    names = ", ".join(quoted(c) for c in columns)
    composer = SqlComposer(section.at("deduplicate")).words(f"SELECT {names} FROM (SELECT *, ROW_NUMBER() OVER (")
    composer.words("PARTITION BY " + ", ".join(quoted(k) for k in keys) + " ORDER BY ", section.value_at("key_by"))
    if isinstance(order, str):
        composer.words(order, deduplicate.location)
    else:
        composer.scalar(order)
    descending = deduplicate.text("keep") == "last"
    composer.words(" DESC" if descending else " ASC", deduplicate.value_at("keep"))
    composer.words(f") AS {quoted(rank)} FROM ", section.at("deduplicate")).name(left)
    return composer.words(f") WHERE {quoted(rank)} = 1", section.at("deduplicate")).text()


def top_n(section: Section, columns: Sequence[str], left: str) -> StepSql:
    """The first rows of each group, with their rank if that has a name."""
    top = section.section("top_n")
    assert top is not None
    named = top.scalar("rank")
    rank = named.text if named is not None else _free("row_number", columns)
    names = ", ".join(quoted(c) for c in (*columns, *((rank,) if named is not None else ())))
    function = (top.text("function") or "row_number").upper()
    at = section.at("top_n")
    composer = SqlComposer(at).words(f"SELECT {names} FROM (SELECT *, ").words(f"{function}() OVER (", at)
    if top.has("partition_by"):
        composer.words("PARTITION BY ", at).listed(top.scalars("partition_by"))
    composer.words(" ORDER BY ", top.at("order_by")).listed(top.scalars("order_by")).words(") AS ", at)
    composer.name(rank, named.location if named is not None else at).words(" FROM ", at).name(left)
    return composer.words(f") WHERE {quoted(rank)} <= {top.integer('n')}", top.value_at("n")).text()


def ordered(section: Section, left: str) -> StepSql:
    """`order_by`, `limit` and `offset`."""
    at = section.at("order_by" if section.has("order_by") else "limit")
    composer = SqlComposer(at).words("SELECT * FROM ").name(left)
    if section.has("order_by"):
        composer.words(" ORDER BY ", at).listed(section.scalars("order_by"))
    if section.has("limit"):
        composer.words(f" LIMIT {section.integer('limit')}", section.value_at("limit"))
    if section.integer("offset"):
        composer.words(f" OFFSET {section.integer('offset')}", section.value_at("offset"))
    return composer.text()


def _free(name: str, taken: Sequence[str]) -> str:
    while name in taken:
        name += "_"
    return name
