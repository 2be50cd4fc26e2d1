"""debezium-json, canal-json, maxwell-json and ogg-json: changes as text, in the form that Flink writes and reads."""

from __future__ import annotations

import json
import random
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowrun.api.format import ChangeEncoder, DecodedRecords, RecordDecoder, lines_chunk
from flowrun.core.elements import RowKind
from flowrun.core.schema import Schema
from flowrun.core.types import BIGINT, DOUBLE, STRING, array, decimal, map_of, row, timestamp
from flowrun.errors import OptionError

from .formats import decoder, encoder, options_of, record_format, rows

SCHEMA = Schema.of(id=BIGINT, name=STRING)
ADD, UB, UA, D = RowKind


def changes(decoded: DecodedRecords) -> list[tuple[str, ...]]:
    return [(RowKind(k).symbol, *r) for k, r in zip(_kinds(decoded), rows(decoded), strict=True)]


def _kinds(decoded: DecodedRecords) -> list[int]:
    kinds: list[int] = [0] * decoded.columns.num_rows if decoded.kinds is None else decoded.kinds.to_pylist()
    return kinds


def read(used: RecordDecoder, *records: str) -> list[tuple[str, ...]]:
    decoded = used.decode(lines_chunk([r.encode() for r in records]))
    assert not decoded.bad, decoded.bad
    return changes(decoded)


def text(format: str, *changed: tuple[int, int, str | None], **options: str) -> list[str]:
    used = encoder(format, SCHEMA, **options)
    assert isinstance(used, ChangeEncoder)
    columns = pa.RecordBatch.from_pylist([{"id": i, "name": n} for _, i, n in changed], schema=SCHEMA.arrow)
    kinds = pa.array([k for k, _, _ in changed], pa.int8())
    lines = used.encode_changes(columns, kinds).to_pybytes().decode()
    assert lines.endswith("\n")
    assert lines.splitlines() == used.encode_change_messages(columns, kinds).to_pylist()
    return lines.splitlines()


# ---- debezium-json


def test_debezium_upserts_need_no_rows_before_and_delete_by_key() -> None:
    used = decoder("debezium-json", SCHEMA, debezium_json__changelog_mode="upsert")
    assert read(
        used,
        '{"before": null, "after": {"id": 1, "name": "a"}, "op": "r"}',
        '{"before": null, "after": {"id": 1, "name": "b"}, "op": "u"}',
        '{"before": {"id": 1, "name": "a"}, "after": {"id": 1, "name": "c"}, "op": "u"}',
        '{"before": {"id": 1}, "after": null, "op": "d"}',
    ) == [("+I", 1, "a"), ("+U", 1, "b"), ("+U", 1, "c"), ("-D", 1, None)]
    (bad,) = used.decode(lines_chunk([b'{"before": null, "after": null, "op": "d"}'])).bad
    assert 'the field "before" of a delete is null' in bad.reason
    with pytest.raises(OptionError, match="changelog-mode is for reading only"):
        encoder("debezium-json", SCHEMA, debezium_json__changelog_mode="upsert")


def test_debezium_writes_adds_as_c_and_removals_as_d() -> None:
    assert text("debezium-json", (ADD, 1, "a"), (UB, 1, "a"), (UA, 1, 'b"'), (D, 1, None)) == [
        '{"before":null,"after":{"id":1,"name":"a"},"op":"c"}',
        '{"before":{"id":1,"name":"a"},"after":null,"op":"d"}',
        '{"before":null,"after":{"id":1,"name":"b\\""},"op":"c"}',
        '{"before":{"id":1,"name":null},"after":null,"op":"d"}',
    ]


def test_debezium_leaves_nulls_out_if_asked_to() -> None:
    assert text(
        "debezium-json", (ADD, 1, None), (D, 1, None), **{"debezium_json__encode__ignore_null_fields": "true"}
    ) == [
        '{"after":{"id":1},"op":"c"}',
        '{"before":{"id":1},"op":"d"}',
    ]


def test_rows_without_kinds_are_inserts() -> None:
    columns = pa.RecordBatch.from_pylist([{"id": 1, "name": "a"}], schema=SCHEMA.arrow)
    used = encoder("debezium-json", SCHEMA)
    assert used.encode(columns).to_pybytes() == b'{"before":null,"after":{"id":1,"name":"a"},"op":"c"}\n'
    assert used.encode_messages(columns).to_pylist() == ['{"before":null,"after":{"id":1,"name":"a"},"op":"c"}']


def test_debezium_reads_every_operation() -> None:
    assert read(
        decoder("debezium-json", SCHEMA),
        '{"before":null,"after":{"id":1,"name":"a"},"source":{"table":"t"},"op":"c","ts_ms":7}',
        '{"op":"r","after":{"id":2}}',
        '{"before":{"id":1,"name":"a"},"after":{"id":1,"name":"b"},"op":"u"}',
        "",
        '{"before":{"id":2},"after":null,"op":"d"}',
    ) == [("+I", 1, "a"), ("+I", 2, None), ("-U", 1, "a"), ("+U", 1, "b"), ("-D", 2, None)]


def test_debezium_reads_events_in_a_payload() -> None:
    used = decoder("debezium-json", SCHEMA, **{"debezium_json__schema_include": "true"})
    event = {"schema": {"type": "struct"}, "payload": {"op": "u", "before": {"id": 1}, "after": {"id": 2}}}
    assert read(used, json.dumps(event)) == [("-U", 1, None), ("+U", 2, None)]
    with pytest.raises(OptionError, match="for reading only"):
        encoder("debezium-json", SCHEMA, **{"debezium_json__schema_include": "true"})


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ('{"id":1}', 'the field "op" is missing'),
        ('{"op":"x","after":{"id":1}}', "expected c, r, u or d"),
        ('{"op":"u","after":{"id":1}}', "REPLICA IDENTITY FULL"),
        ('{"op":"d","before":null}', 'the field "before" of a delete is null'),
        ('{"op":"c","after":null}', 'the field "after"'),
        ('{"op":"c","after":{"id":"x"}}', "BIGINT"),
        ("nonsense", "not JSON"),
    ],
)
def test_what_is_no_debezium_event_is_told(record: str, reason: str) -> None:
    good = '{"op":"c","after":{"id":1}}'
    decoded = decoder("debezium-json", SCHEMA).decode(lines_chunk([good.encode(), record.encode(), good.encode()]))
    assert changes(decoded) == [("+I", 1, None)] * 2
    assert [b.index for b in decoded.bad] == [1]
    assert reason in decoded.bad[0].reason


def test_no_columns_are_changes_all_the_same() -> None:
    used = decoder("debezium-json", Schema(()), SCHEMA)
    assert read(used, '{"op":"c","after":{"id":1}}', '{"op":"d","before":{"id":1}}') == [("+I",), ("-D",)]


NESTED = Schema.of(
    id=BIGINT,
    price=decimal(10, 2),
    at=timestamp(3),
    score=DOUBLE,
    tags=array(STRING),
    place=row(("city", STRING), ("zip", BIGINT)),
    more=map_of(STRING, BIGINT),
)


@pytest.mark.parametrize("format", ["debezium-json", "canal-json", "maxwell-json", "ogg-json"])
@given(data=st.data())
def test_what_is_written_is_read_again(format: str, data: st.DataObject) -> None:
    with_maps = data.draw(st.booleans())
    schema = NESTED if with_maps else NESTED.select(NESTED.names[:-1])
    seed = data.draw(st.integers(0, 10_000))
    source = random.Random(seed)
    values = [_random_row(source) for _ in range(data.draw(st.integers(1, 30)))]
    columns = pa.RecordBatch.from_pylist(values, schema=schema.arrow)
    kinds = pa.array([source.randrange(4) for _ in values], pa.int8())
    used = encoder(format, schema)
    assert isinstance(used, ChangeEncoder)
    decoded = decoder(format, schema).decode(lines_chunk(used.encode_changes(columns, kinds).to_pybytes().splitlines()))
    assert decoded.columns.to_pylist() == columns.to_pylist()
    assert [k & 1 for k in _kinds(decoded)] == [k & 1 for k in kinds.to_pylist()]


def _random_row(source: random.Random) -> dict[str, object]:
    def maybe(value: object) -> object:
        return None if source.random() < 0.2 else value

    return {
        "id": maybe(source.randrange(-5, 5)),
        "price": maybe(Decimal(source.randrange(100_000)) / 100),
        "at": maybe(source.randrange(10**12)),
        "score": maybe(source.random()),
        "tags": maybe([maybe("t\n☂"), "x"]),
        "place": maybe({"city": maybe('a"b'), "zip": maybe(1)}),
        "more": maybe([("k", 1), ("l", None)]),
    }


# ---- canal-json


def test_canal_writes_inserts_and_deletes() -> None:
    assert text("canal-json", (ADD, 1, "a"), (UB, 1, "a"), (UA, 1, "b"), (D, 1, "b")) == [
        '{"data":[{"id":1,"name":"a"}],"type":"INSERT"}',
        '{"data":[{"id":1,"name":"a"}],"type":"DELETE"}',
        '{"data":[{"id":1,"name":"b"}],"type":"INSERT"}',
        '{"data":[{"id":1,"name":"b"}],"type":"DELETE"}',
    ]


def test_canal_messages_hold_several_rows_and_old_only_what_changed() -> None:
    assert read(
        decoder("canal-json", SCHEMA),
        '{"data":[{"id":1,"name":"a"},{"id":2,"name":"b"}],"old":null,"type":"INSERT"}',
        '{"data":[{"id":1,"name":"A"},{"id":20,"name":"b"}],"old":[{"name":"a"},{"id":2}],"type":"UPDATE"}',
        '{"data":[],"type":"CREATE","sql":"create table t"}',
        '{"data":[{"id":1,"name":"A"}],"type":"DELETE"}',
    ) == [
        ("+I", 1, "a"),
        ("+I", 2, "b"),
        ("-U", 1, "a"),
        ("+U", 1, "A"),
        ("-U", 2, "b"),
        ("+U", 20, "b"),
        ("-D", 1, "A"),
    ]


def test_a_null_in_old_is_the_old_value_an_absent_field_is_not() -> None:
    assert read(
        decoder("canal-json", SCHEMA),
        '{"data":[{"id":1,"name":"x"},{"id":2,"name":"y"}],"old":[{"id":0},{"name":null}],"type":"UPDATE"}',
        '{"data":[{"id":3,"name":"z"}],"old":[{"name":null}],"type":"UPDATE"}',
    ) == [
        ("-U", 0, "x"),
        ("+U", 1, "x"),
        ("-U", 2, None),
        ("+U", 2, "y"),
        ("-U", 3, None),
        ("+U", 3, "z"),
    ]


def test_only_the_databases_and_tables_that_are_asked_for() -> None:
    options = {"canal_json__database__include": "shop.*", "canal_json__table__include": "orders"}
    used = decoder("canal-json", SCHEMA, **options)
    message = '{{"database":"{}","table":"{}","data":[{{"id":{}}}],"type":"INSERT"}}'
    messages = [
        message.format(d, t, i) for i, (d, t) in enumerate([("shop1", "orders"), ("x", "orders"), ("shop", "o")])
    ]
    assert read(used, *messages) == [("+I", 0, None)]
    with pytest.raises(OptionError, match="no regular expression"):
        record_format("canal-json").check(SCHEMA, options_of("canal-json", canal_json__table__include="("))


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ('{"id":1}', 'the field "type" is missing'),
        ('{"type":"MERGE","data":[]}', "expected INSERT, UPDATE or DELETE"),
        ('{"type":"INSERT"}', 'the field "data" is missing'),
        ('{"type":"UPDATE","data":[{"id":1}],"old":[]}', '"data" has 1 rows, but "old" has 0'),
    ],
)
def test_what_is_no_canal_message_is_told(record: str, reason: str) -> None:
    decoded = decoder("canal-json", SCHEMA).decode(
        lines_chunk([b'{"type":"INSERT","data":[{"id":1}]}', record.encode()])
    )
    assert changes(decoded) == [("+I", 1, None)]
    assert [b.index for b in decoded.bad] == [1]
    assert reason in decoded.bad[0].reason


# ---- ogg-json


def test_ogg_writes_adds_as_i_and_removals_as_d() -> None:
    assert text("ogg-json", (ADD, 1, "a"), (UB, 1, "a"), (UA, 1, "b"), (D, 1, None)) == [
        '{"before":null,"after":{"id":1,"name":"a"},"op_type":"I"}',
        '{"before":{"id":1,"name":"a"},"after":null,"op_type":"D"}',
        '{"before":null,"after":{"id":1,"name":"b"},"op_type":"I"}',
        '{"before":{"id":1,"name":null},"after":null,"op_type":"D"}',
    ]
    assert text("ogg-json", (ADD, 1, None), **{"ogg_json__encode__ignore_null_fields": "true"}) == [
        '{"after":{"id":1},"op_type":"I"}'
    ]


def test_ogg_reads_every_operation() -> None:
    assert read(
        decoder("ogg-json", SCHEMA),
        '{"after":{"id":1,"name":"a"},"op_type":"I","op_ts":"2020-05-13 15:40:06.000000","table":"T"}',
        '{"before":{"id":1,"name":"a"},"after":{"id":1,"name":"b"},"op_type":"U"}',
        '{"before":{"id":1,"name":"b"},"op_type":"D"}',
    ) == [("+I", 1, "a"), ("-U", 1, "a"), ("+U", 1, "b"), ("-D", 1, "b")]


# ---- maxwell-json


def test_maxwell_writes_inserts_and_deletes() -> None:
    assert text("maxwell-json", (ADD, 1, "a"), (UB, 1, "a"), (UA, 1, "b"), (D, 1, "b")) == [
        '{"data":{"id":1,"name":"a"},"type":"insert"}',
        '{"data":{"id":1,"name":"a"},"type":"delete"}',
        '{"data":{"id":1,"name":"b"},"type":"insert"}',
        '{"data":{"id":1,"name":"b"},"type":"delete"}',
    ]


def test_maxwell_updates_hold_the_old_values_of_what_changed_only() -> None:
    assert read(
        decoder("maxwell-json", SCHEMA),
        '{"database":"d","table":"t","type":"insert","ts":1477053217,"data":{"id":1,"name":"a"}}',
        '{"type":"update","data":{"id":1,"name":"A"},"old":{"name":"a"}}',
        '{"type":"update","data":{"id":20,"name":"A"},"old":{"id":1}}',
        '{"type":"update","data":{"id":20,"name":"B"},"old":{"name":null}}',
        '{"type":"delete","data":{"id":20,"name":"B"}}',
    ) == [
        ("+I", 1, "a"),
        ("-U", 1, "a"),
        ("+U", 1, "A"),
        ("-U", 1, "A"),
        ("+U", 20, "A"),
        ("-U", 20, None),
        ("+U", 20, "B"),
        ("-D", 20, "B"),
    ]


@pytest.mark.parametrize(
    ("format", "record", "reason"),
    [
        ("ogg-json", '{"id":1}', 'the field "op_type" is missing'),
        ("ogg-json", '{"op_type":"T"}', "expected I, U or D"),
        ("ogg-json", '{"op_type":"U","after":{"id":1}}', "supplemental logging"),
        ("ogg-json", '{"op_type":"I","after":null}', 'the field "after"'),
        ("maxwell-json", '{"id":1}', 'the field "type" is missing'),
        ("maxwell-json", '{"type":"bootstrap-start","data":{}}', "expected insert, update or delete"),
        ("maxwell-json", '{"type":"insert"}', 'the field "data" is missing'),
        ("maxwell-json", '{"type":"update","data":{"id":1}}', 'the field "old" of an update is missing'),
        ("maxwell-json", "nonsense", "not JSON"),
    ],
)
def test_what_is_no_message_of_the_tool_is_told(format: str, record: str, reason: str) -> None:
    good = text(format, (ADD, 1, "a"))[0]
    decoded = decoder(format, SCHEMA).decode(lines_chunk([good.encode(), record.encode(), good.encode()]))
    assert changes(decoded) == [("+I", 1, "a")] * 2
    assert [b.index for b in decoded.bad] == [1]
    assert reason in decoded.bad[0].reason


@pytest.mark.parametrize("format", ["ogg-json", "maxwell-json"])
def test_no_columns_are_changes_in_every_format(format: str) -> None:
    records = text(format, (ADD, 1, "a"), (D, 1, "a"))
    assert read(decoder(format, Schema(()), SCHEMA), *records) == [("+I",), ("-D",)]
