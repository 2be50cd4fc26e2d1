"""One row a primary key when the watermark advances, against a function for one change at a time."""

from __future__ import annotations

import pickle
import random
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from flowrun.api.state import DELETED_COLUMN, KEY_GROUP_COLUMN
from flowrun.core.elements import MAX_TIMESTAMP, MIN_TIMESTAMP, RowKind
from flowrun.core.schema import Field, Schema
from flowrun.core.types import BIGINT, DOUBLE, STRING, array
from flowrun.errors import DataError
from flowrun.operators.keyed import key_rows, row_store
from flowrun.operators.updating import waiting_changes
from flowrun.operators.updating.factories import ConflictResolutionFactory
from flowrun.operators.updating.waiting_changes import net_changes
from flowrun.testing.harness import OperatorHarness
from tests.examples import examples
from tests.operators.ranking.oracles import Row, columns
from tests.operators.stored import stored, taken

ORDERS = Schema.of(id=BIGINT, who=STRING, price=DOUBLE)
MARKED = Schema((*ORDERS.fields, Field("$watermark", BIGINT)))
SEEDS = st.integers(0, 2**32)
Change = tuple[str, Row]
NAN = float("nan")


class Conflict(Exception):
    """What the oracle says of several rows of a key."""


class Oracle:
    """Changes of one key after the other, each by itself. Rows must not hold NaN."""

    def __init__(self, keys: tuple[int, ...], *, fails: bool) -> None:
        self._keys = keys
        self._fails = fails
        self._waiting: list[tuple[int, str, Row]] = []
        self.rows: dict[Row, tuple[Row, int]] = {}

    def add(self, kind: str, row: Row, mark: int) -> None:
        self._waiting.append((mark, kind, row))

    @staticmethod
    def _nets(changes: list[tuple[int, str, Row]]) -> dict[tuple[int, Row], tuple[int, int]]:
        """(how many rows come or go, the place since which one is there) of each row and watermark."""
        nets: dict[tuple[int, Row], tuple[int, int]] = {}
        for place, (mark, kind, row) in enumerate(changes):
            copies, since = nets.get((mark, row), (0, place))
            more = copies + (1 if kind[0] == "+" else -1)
            nets[mark, row] = (more, place if (copies, more) == (0, 1) else since)
        return nets

    def resolved(self, watermark: int) -> list[Change]:
        due = [w for w in self._waiting if w[0] < watermark]
        self._waiting = [w for w in self._waiting if w[0] >= watermark]
        totals: dict[Row, tuple[int, tuple[int, int]]] = {}
        for (mark, row), (net, since) in sorted(self._nets(due).items(), key=lambda n: n[0][0]):
            copies, first = totals.get(row, (0, (0, 0)))
            totals[row] = (copies + net, (mark, since) if copies <= 0 < copies + net else first)
        sent = []
        for key in {tuple(row[k] for k in self._keys): None for row in totals}:
            sent += self._resolved_key(key, {r: t for r, t in totals.items() if tuple(r[k] for k in self._keys) == key})
        return sent

    def _resolved_key(self, key: Row, totals: dict[Row, tuple[int, tuple[int, int]]]) -> list[Change]:
        old, copies = self.rows.pop(key, (None, 0))
        if old is not None:
            copies += totals.pop(old, (0, (0, 0)))[0]
        comes = sorted((since, row, n) for row, (n, since) in totals.items() if n > 0)
        if self._fails and len(comes) + (copies > 0) > 1:
            raise Conflict(key)
        if copies > 0:
            assert old is not None
            self.rows[key] = (old, copies)
            return []
        if not comes:
            return [] if old is None else [("-D", old)]
        _, row, n = comes[0]
        self.rows[key] = (row, n)
        return [("+I", row)] if old is None else [("-U", old), ("+U", row)]


def factory(keys: tuple[int, ...] = (0,), *, fails: bool = False, ttl_ms: int = 0) -> ConflictResolutionFactory:
    return ConflictResolutionFactory(ORDERS, keys, "orders", fails, ttl_ms)


def push(harness: OperatorHarness, changes: list[Change], marks: list[int] | int = MIN_TIMESTAMP) -> None:
    of_each = [marks] * len(changes) if isinstance(marks, int) else marks
    kinds = [int(next(k for k in RowKind if k.symbol == kind)) for kind, _ in changes]
    rows = [(*row, mark) for (_, row), mark in zip(changes, of_each, strict=True)]
    harness.push(columns(rows, MARKED), row_kinds=kinds)


def sent(harness: OperatorHarness, watermark: int) -> list[Change]:
    """What comes out when the watermark advances."""
    harness.clear()
    harness.watermark(watermark)
    return list(harness.changes())


def by_key(changes: list[Change], keys: tuple[int, ...]) -> list[Change]:
    return sorted(changes, key=lambda c: repr([c[1][k] for k in keys]))


def random_change(dice: random.Random, held: Counter[Row]) -> Change:
    row: Row = (dice.randrange(3), dice.choice(["a", "b", None]), dice.choice([1.0, None]))
    if held and dice.random() < 0.5:
        row = dice.choice(list(held.elements()) or [row])
        held[row] -= 1
        return dice.choice(["-U", "-D"]), row
    if dice.random() < 0.1:
        return "-D", row  # of a row that is not there, or comes later
    held[row] += 1
    return dice.choice(["+I", "+U"]), row


@examples(120)
@given(SEEDS, st.sampled_from([(0,), (0, 1), (1,)]), st.sampled_from([1, 7, 1000]), st.booleans())
@example(3116, (0,), 1, False)
def test_as_one_change_after_the_other_however_rows_come_in_batches(
    seed: int, keys: tuple[int, ...], batch_rows: int, fails: bool
) -> None:
    dice = random.Random(seed)
    with pytest.MonkeyPatch.context() as patch:
        for module, name in ((row_store, "_SPARE"), (waiting_changes, "_SPARE"), (key_rows, "_SPARE_SLOTS")):
            patch.setattr(module, name, 3)
        _check_random(dice, keys, batch_rows, fails)


def _check_random(dice: random.Random, keys: tuple[int, ...], batch_rows: int, fails: bool) -> None:
    recipe, oracle, held = factory(keys, fails=fails), Oracle(keys, fails=fails), Counter[Row]()
    harness = OperatorHarness(recipe, schema=MARKED)
    watermark = 0
    for interval in range(12):
        changes = [random_change(dice, held) for _ in range(dice.randrange(1, 6 if fails else 30))]
        marks = [watermark + dice.choice([0, 0, 1, 2]) for _ in changes]  # other senders are ahead
        for start in range(0, len(changes), batch_rows):
            push(harness, changes[start : start + batch_rows], marks[start : start + batch_rows])
        for (kind, row), mark in zip(changes, marks, strict=True):
            oracle.add(kind, row, mark)
        if dice.random() < 0.3:
            snapshot = stored(taken(harness), interval)
            assert snapshot.keyed["rows"].num_rows == len(oracle.rows)
            harness = OperatorHarness.restore(pickle.loads(pickle.dumps(recipe)), [snapshot], schema=MARKED)
        watermark += dice.choice([1, 1, 2, 3])
        if dice.random() < 0.8:
            try:
                wanted = oracle.resolved(watermark)
            except Conflict:
                with pytest.raises(DataError, match="sink 'orders': the query has"):
                    harness.watermark(watermark)
                return
            assert by_key(sent(harness, watermark), keys) == by_key(wanted, keys)
    wanted = []
    try:
        wanted = oracle.resolved(MAX_TIMESTAMP)
    except Conflict:
        with pytest.raises(DataError, match="different rows"):
            harness.watermark(MAX_TIMESTAMP)
        return
    assert by_key(sent(harness, MAX_TIMESTAMP), keys) == by_key(wanted, keys)
    assert stored(taken(harness)).keyed["changes"].num_rows == 0


@pytest.mark.parametrize("fails", [True, False])
def test_a_conflict_that_is_gone_when_the_watermark_comes_is_none(fails: bool) -> None:
    harness = OperatorHarness(factory(fails=fails), schema=MARKED)
    push(harness, [("+I", (1, "ann", 1.0)), ("+I", (2, "cid", 2.0))])
    assert sent(harness, 10) == [("+I", (1, "ann", 1.0)), ("+I", (2, "cid", 2.0))]
    push(
        harness,
        [("+I", (1, "bob", 1.0)), ("-D", (1, "ann", 1.0)), ("-U", (2, "cid", 2.0)), ("+U", (2, "cid", 2.0))],
        10,
    )
    assert sent(harness, 20) == [("-U", (1, "ann", 1.0)), ("+U", (1, "bob", 1.0))]


def test_changes_of_a_subtask_that_is_ahead_wait_for_the_others() -> None:
    harness = OperatorHarness(factory(fails=True), schema=MARKED)
    push(harness, [("+I", (1, "ann", 1.0))])
    assert sent(harness, 5) == [("+I", (1, "ann", 1.0))]
    push(
        harness, [("+I", (1, "bob", 1.0))], 10
    )  # its sender had the watermark 10 already, the other one has not said yet that ann goes
    assert sent(harness, 10) == []
    push(harness, [("-D", (1, "ann", 1.0))], 10)
    assert sent(harness, 11) == [("-U", (1, "ann", 1.0)), ("+U", (1, "bob", 1.0))]


def test_a_conflict_names_the_key_and_the_rows_and_says_what_to_do() -> None:
    harness = OperatorHarness(factory(fails=True), schema=MARKED)
    push(harness, [("+I", (1, "ann", 1.0)), ("+I", (2, "x", 1.0))])
    harness.watermark(1)
    push(harness, [("+I", (3, "y", 1.0)), *(("+I", (1, who, 1.0)) for who in ("bob", "cid", "dan"))], 1)
    with pytest.raises(DataError) as failure:
        harness.watermark(2)
    assert failure.value.message == (
        "sink 'orders': the query has 4 different rows for the primary key {id: 1}, which is an error with ON CONFLICT DO ERROR: "
        "{id: 1, who: 'ann', price: 1.0}, {id: 1, who: 'bob', price: 1.0}, {id: 1, who: 'cid', price: 1.0} and 1 more"
    )
    assert "ON CONFLICT DO NOTHING the first, DO DEDUPLICATE the last" in (failure.value.hint or "")


def test_equal_rows_are_one_row_which_is_there_as_long_as_one_of_them_is() -> None:
    harness = OperatorHarness(factory(fails=True), schema=MARKED)
    push(harness, [("+I", (1, None, NAN)), ("+I", (1, None, NAN))])
    assert str(sent(harness, 1)) == str([("+I", (1, None, NAN))])
    push(harness, [("+I", (1, None, NAN)), ("-D", (1, None, NAN)), ("-D", (1, None, NAN))], 1)
    assert sent(harness, 2) == []
    push(harness, [("-D", (1, None, NAN))], 2)
    assert str(sent(harness, 3)) == str([("-D", (1, None, NAN))])


def test_the_first_row_stays_others_are_forgotten() -> None:
    harness = OperatorHarness(factory(), schema=MARKED)
    push(harness, [("+I", (1, "ann", 1.0)), ("+I", (1, "bob", 1.0))])
    assert sent(harness, 1) == [("+I", (1, "ann", 1.0))]
    push(harness, [("-D", (1, "bob", 1.0)), ("+I", (1, "cid", 1.0))], 1)
    assert sent(harness, 2) == []
    push(harness, [("-D", (1, "ann", 1.0))], 2)
    assert sent(harness, 3) == [("-D", (1, "ann", 1.0))], "cid has been forgotten"
    push(harness, [("-D", (1, "cid", 1.0)), ("+I", (1, "dan", 1.0)), ("+I", (1, "eve", 1.0))], 3)
    assert sent(harness, 4) == [("+I", (1, "dan", 1.0))]


def test_what_comes_behind_the_last_watermark_counts_at_the_end() -> None:
    harness = OperatorHarness(factory(fails=True), schema=MARKED)
    harness.watermark(MAX_TIMESTAMP)
    push(harness, [("+I", (1, "ann", 1.0))], MAX_TIMESTAMP)
    assert harness.rows() == []
    harness.end_input()
    assert harness.rows() == [(1, "ann", 1.0)]


def test_after_a_restart_changes_wait_for_the_same_watermarks() -> None:
    harness = OperatorHarness(factory(fails=True), schema=MARKED)
    push(harness, [("+I", (1, "ann", 1.0))], 1000)
    restored = OperatorHarness.restore(factory(fails=True), [stored(taken(harness))], schema=MARKED)
    push(restored, [("+I", (1, "bob", 1.0))], 1000)  # was in flight; that ann goes has not been read again yet
    assert sent(restored, 1000) == []
    push(restored, [("-D", (1, "ann", 1.0))], 1000)
    assert sent(restored, 1001) == [("+I", (1, "bob", 1.0))]


def test_a_row_that_expired_is_not_in_conflict() -> None:
    harness = OperatorHarness(factory(fails=True, ttl_ms=1000), schema=MARKED)
    push(harness, [("+I", (i, "ann", 1.0)) for i in (1, 2)])
    harness.watermark(1)
    harness.advance_processing_time(999)
    push(harness, [("+I", (2, "ann", 1.0))], 1)
    harness.watermark(2)
    harness.advance_processing_time(1)
    restored = OperatorHarness.restore(
        factory(fails=True, ttl_ms=1000), [stored(taken(harness))], schema=MARKED, clock=harness.clock
    )
    for running in (harness, restored):
        push(running, [("+I", (1, "bob", 1.0)), ("-D", (2, "ann", 1.0)), ("-D", (2, "ann", 1.0))], 2)
        assert sent(running, 3) == [("+I", (1, "bob", 1.0)), ("-D", (2, "ann", 1.0))]


@pytest.mark.parametrize("parallelism", [1, 3])
def test_keys_go_on_at_another_parallelism(parallelism: int) -> None:
    options: dict[str, Any] = {"schema": MARKED, "state_keys": [(0,)]}
    subtasks = [OperatorHarness(factory(fails=True), subtask=i, parallelism=2, **options) for i in range(2)]
    for harness in subtasks:
        push(harness, [("+I", (i, "ann", 1.0)) for i in range(50)])
        harness.watermark(1)
        push(harness, [("-D", (i, "ann", 1.0)) for i in range(0, 50, 2)], 1)
    snapshots = [stored(taken(h)) for h in subtasks]
    changes: list[Change] = []
    for i in range(parallelism):
        harness = OperatorHarness.restore(factory(fails=True), snapshots, subtask=i, parallelism=parallelism, **options)
        push(harness, [("+I", (i, "bob", 1.0)) for i in range(0, 60, 4)], 1)
        changes += sent(harness, 2)
    wanted: list[Change] = []
    for i in range(0, 60, 2):
        if i % 4 == 0:
            wanted += [("+I", (i, "bob", 1.0))] if i >= 50 else [("-U", (i, "ann", 1.0)), ("+U", (i, "bob", 1.0))]
        elif i < 50:
            wanted.append(("-D", (i, "ann", 1.0)))
    assert sorted(changes) == sorted(wanted)


def test_rows_with_columns_that_cannot_be_hashed() -> None:
    schema = Schema.of(id=BIGINT, tags=array(STRING))
    recipe = ConflictResolutionFactory(schema, (0,), "t", True)
    marked = Schema((*schema.fields, Field("$watermark", BIGINT)))
    harness = OperatorHarness(recipe, schema=marked)
    rows = {"id": [1, 1, 1], "tags": [["a"], ["b"], ["a"]], "$watermark": [0, 0, 0]}
    harness.push(pa.RecordBatch.from_pydict(rows, schema=marked.arrow), row_kinds=[0, 0, 3])
    harness.watermark(1)
    assert harness.rows() == [(1, ["b"])]


def test_changes_that_cancel_each_other_out_need_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_store, "_SPARE", 4)
    monkeypatch.setattr(waiting_changes, "_SPARE", 4)
    harness = OperatorHarness(factory(fails=True), schema=MARKED)
    push(harness, [("+I", (1, "0", 1.0))])
    for step in range(100):
        push(harness, [("-U", (1, str(step), 1.0)), ("+U", (1, str(step + 1), 1.0))])
    assert len(harness.operator._waiting) <= 8
    assert sent(harness, 1) == [("+I", (1, "100", 1.0))]


def test_keys_without_rows_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_store, "_SPARE", 4)
    monkeypatch.setattr(key_rows, "_SPARE_SLOTS", 4)
    harness = OperatorHarness(factory(fails=True), schema=MARKED)
    for step in range(60):
        old, new = (step - 1, "ann", 1.0), (step, "ann", 1.0)
        push(
            harness,
            [("+I", new), *([("-D", old)] if step else []), *([] if step else [("+I", (99, "ever", 1.0))])],
            step,
        )
        harness.watermark(step + 1)
    assert harness.snapshot().keyed["rows"].num_rows == 2
    assert harness.operator._rows.slots < 20
    push(harness, [("-D", (99, "ever", 1.0))], 61)
    assert sent(harness, 62) == [("-D", (99, "ever", 1.0))]


def test_nothing_comes_of_nothing() -> None:
    nothing = np.zeros(0, np.int64)
    assert len(net_changes(nothing, nothing).places) == 0
    harness = OperatorHarness(factory(), schema=MARKED)
    assert sent(harness, 5) == []


def test_what_is_remembered_is_explained() -> None:
    recipe = factory()
    for table, schema in recipe.state_schemas().items():
        own = {name for name in schema.names if name.startswith("__")} - {KEY_GROUP_COLUMN, DELETED_COLUMN}
        assert own == recipe.state_meanings()[table].keys()
