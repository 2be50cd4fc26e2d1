"""Which nodes queries become, and how they are called."""

from __future__ import annotations

from typing import TypeVar

import pytest

from flowrun.core.semantics import FrameUnit, JoinKind, NullOrder, SortKey
from flowrun.core.types import BIGINT, INT, STRING, row
from flowrun.frontend.sql.catalog import Catalog, FunctionKind, UserFunction
from flowrun.plan.expressions import PythonCall
from flowrun.plan.joins import Join, TemporalJoin
from flowrun.plan.nodes import Calc, NodeHints, Plan, PlanNode, Scan, Sink, TableReference, Union, walk_plan
from flowrun.plan.relational import (
    Expand,
    Frame,
    GroupAggregate,
    Over,
    Rank,
    TableFunctionCall,
    TemporalSort,
    Unnest,
    Values,
    WindowTableFunction,
)
from flowrun.plan.windows import CumulativeWindow, SessionWindow, SlidingWindow, TumblingWindow
from tests.frontend.sql.queries.binding import bind, catalog, plan, view

Node = TypeVar("Node", bound=PlanNode)


def nodes(node: PlanNode) -> list[PlanNode]:
    sink = Sink(node.schema, NodeHints(name="out"), node, TableReference("out", "print", {}))
    return [n for n in walk_plan(Plan("p", (sink,))) if n is not sink]


def only(node: PlanNode, kind: type[Node]) -> Node:
    (found,) = [n for n in nodes(node) if isinstance(n, kind)]
    return found


def pending(node: PlanNode) -> list[str]:
    """Parts of expressions that only the binder knows; there may be none."""
    return [repr(n) for n in nodes(node) if "Pending" in repr(n) or "OuterColumn" in repr(n)]


class TestColumns:
    @pytest.mark.parametrize(
        ("query", "names"),
        [
            ("SELECT id, id + 1, COUNT(*) OVER (ORDER BY at) FROM sales", ("id", "EXPR$1", "EXPR$2")),
            ("SELECT client.os, client.release.major AS m FROM visits", ("os", "m")),
            ("SELECT client.release.* FROM visits", ("major", "minor")),
            ("SELECT *, id FROM shops, (SELECT id FROM sales)", ("shop", "city", "opened", "id", "id")),
            ("SELECT * FROM shops a, shops b", ("shop", "city", "opened", "shop0", "city0", "opened0")),
            ("SELECT b.* FROM sales a, shops b", ("shop", "city", "opened")),
            ("SELECT * FROM sales JOIN shops USING (shop)",
             ("shop", "id", "item", "price", "pieces", "at", "city", "opened")),
            ("SELECT CURRENT_DATE, `at` AS `when it was` FROM sales", ("EXPR$0", "when it was")),
            ("VALUES (1, 'a')", ("EXPR$0", "EXPR$1")),
            ("SELECT * FROM visits, UNNEST(facts) WITH ORDINALITY",
             ("visit", "shop", "pages", "facts", "client", "lines", "at", "KEY", "VALUE", "ORDINALITY")),
        ],
    )  # fmt: skip
    def test_output_columns_are_named_as_flink_names_them(self, query: str, names: tuple[str, ...]) -> None:
        assert bind(query).names == names

    def test_columns_of_one_name_are_told_apart_inside(self) -> None:
        bound = bind("SELECT s.shop, t.shop FROM sales s JOIN shops t ON s.shop = t.shop")
        assert bound.names == ("shop", "shop")
        assert bound.node.schema.names == ("shop", "shop0")

    def test_a_star_that_repeats_a_name_can_be_selected_from(self) -> None:
        assert plan("SELECT shop0 FROM (SELECT * FROM sales s JOIN shops t ON s.shop = t.shop)").schema.names == (
            "shop0",
        )

    def test_not_null_is_known_where_it_is_easily_seen(self) -> None:
        schema = plan("SELECT id, id + 1, shop, COALESCE(shop, 'x'), shop IS NULL, 1 FROM sales").schema
        assert [f.nullable for f in schema] == [False, False, True, False, False, False]
        outer = plan("SELECT s.id, v.visit FROM sales s LEFT JOIN visits v ON s.id = v.visit").schema
        assert [f.nullable for f in outer] == [False, True]

    def test_typeof_an_aggregate_still_groups(self) -> None:
        bound = plan("SELECT TYPEOF(MAX(id)) AS t FROM sales")
        assert only(bound, GroupAggregate).keys == ()
        assert bound.schema.types == (STRING,)


class TestNamesOfNodes:
    def test_every_node_has_a_name_a_place_and_a_location(self) -> None:
        text = "SELECT shop, COUNT(*) AS n FROM sales WHERE id > 1 GROUP BY shop"
        bound = bind(text, offset=30, name="totals").node
        group = only(bound, GroupAggregate)
        assert group.hints.name == "totals.aggregate"
        assert group.hints.place == "totals.aggregate-1"
        assert group.hints.location is not None
        assert group.hints.location.column == 30 + text.index("shop", 40) + 1

    def test_places_are_unique(self) -> None:
        text = "SELECT id FROM sales WHERE shop IN (SELECT shop FROM shops) AND id NOT IN (SELECT visit FROM visits)"
        places = [n.hints.place for n in nodes(plan(text)) if not isinstance(n, Scan)]
        assert None not in places
        assert len(set(places)) == len(places)

    def test_aggregates_are_named_after_the_columns_they_become(self) -> None:
        group = only(
            plan("SELECT shop, SUM(pieces) AS total, MAX(id) + 1 AS next FROM sales GROUP BY shop"), GroupAggregate
        )
        assert group.schema.names == ("shop", "total", "max$")


class TestSharing:
    def test_a_table_is_scanned_once(self) -> None:
        assert (
            len([n for n in nodes(plan("SELECT a.id FROM sales a JOIN sales b ON a.id = b.id")) if isinstance(n, Scan)])
            == 1
        )

    def test_a_table_of_with_and_a_view_are_computed_once(self) -> None:
        shared = plan(
            "WITH t AS (SELECT shop, COUNT(*) AS n FROM sales GROUP BY shop) SELECT a.n FROM t a JOIN t b ON a.n = b.n"
        )
        assert only(shared, GroupAggregate)
        known = catalog()
        view(known, "counts", "SELECT shop, COUNT(*) AS n FROM sales GROUP BY shop")
        assert only(plan("SELECT n FROM counts UNION ALL SELECT n FROM counts", known), GroupAggregate)

    def test_a_table_of_with_hides_one_of_the_catalog(self) -> None:
        assert plan("WITH sales AS (SELECT 1 AS one) SELECT one FROM sales").schema.names == ("one",)


class TestJoins:
    def test_conditions_of_where_that_compare_two_tables_belong_to_the_join(self) -> None:
        join = only(plan("SELECT s.id FROM sales s, shops t WHERE s.shop = t.shop AND s.id > 3"), Join)
        assert str(join.condition) == "(shop = shop)"

    def test_a_chain_of_commas_finds_each_joins_condition(self) -> None:
        query = (
            "SELECT a.id FROM sales a, shops b, visits c WHERE a.shop = b.shop AND b.city = c.shop AND a.id < c.visit"
        )
        conditions = [str(n.condition) for n in nodes(plan(query)) if isinstance(n, Join)]
        assert conditions == ["(shop = shop)", "((city = shop) AND (id < visit))"]

    def test_an_outer_joins_where_stays_above_it(self) -> None:
        join = only(plan("SELECT s.id FROM sales s LEFT JOIN shops t ON s.shop = t.shop WHERE s.id > t.opened"), Join)
        assert (join.kind, str(join.condition)) == (JoinKind.LEFT, "(shop = shop)")

    def test_a_version_is_joined_as_of_a_column_of_the_left(self) -> None:
        join = only(
            plan("SELECT s.id FROM sales s LEFT JOIN shops FOR SYSTEM_TIME AS OF s.at AS t ON s.shop = t.shop"),
            TemporalJoin,
        )
        assert (join.kind, join.left_time, join.right_time, join.left_keys) == (JoinKind.LEFT, 5, None, ())
        assert str(join.condition) == "(shop = shop)"

    def test_the_time_of_a_version_may_be_computed(self) -> None:
        join = only(
            plan("SELECT s.id FROM sales s JOIN shops FOR SYSTEM_TIME AS OF PROCTIME() AS t ON s.shop = t.shop"),
            TemporalJoin,
        )
        assert join.left_time == len(join.left.schema) - 1
        comma = only(
            plan("SELECT s.id FROM sales s, shops FOR SYSTEM_TIME AS OF s.at AS t WHERE s.shop = t.shop"), TemporalJoin
        )
        assert str(comma.condition) == "(shop = shop)"

    def test_exists_and_in_are_semi_and_anti_joins(self) -> None:
        semi = only(plan("SELECT id FROM sales s WHERE EXISTS (SELECT * FROM shops t WHERE t.shop = s.shop)"), Join)
        assert (semi.kind, semi.right.schema.names) == (JoinKind.SEMI, ("shop",))
        anti = only(plan("SELECT id FROM sales s WHERE id NOT IN (SELECT visit FROM visits)"), Join)
        assert anti.kind is JoinKind.ANTI

    def test_intersect_compares_nulls_as_equal(self) -> None:
        join = only(plan("SELECT shop FROM sales INTERSECT SELECT shop FROM shops"), Join)
        assert (join.kind, join.left_keys, join.right_keys, join.null_safe) == (JoinKind.SEMI, (0,), (0,), (True,))


class TestWindows:
    @pytest.mark.parametrize(
        ("call", "window"),
        [
            ("TUMBLE(TABLE sales, DESCRIPTOR(at), INTERVAL '1' MINUTE)", TumblingWindow(60_000)),
            ("TUMBLE(TABLE sales, DESCRIPTOR(at), INTERVAL '1' MINUTE, INTERVAL '-5' SECOND)", TumblingWindow(60_000, -5000)),
            ("HOP(TABLE sales, DESCRIPTOR(at), INTERVAL '10' SECOND, INTERVAL '1' MINUTE)", SlidingWindow(60_000, 10_000)),
            ("HOP(DATA => TABLE sales, SIZE => INTERVAL '1' HOUR, SLIDE => INTERVAL '1' MINUTE, TIMECOL => DESCRIPTOR(at))",
             SlidingWindow(3_600_000, 60_000)),
            ("CUMULATE(TABLE sales, DESCRIPTOR(at), INTERVAL '1' MINUTE, INTERVAL '1' HOUR)", CumulativeWindow(3_600_000, 60_000)),
            ("SESSION(TABLE sales, DESCRIPTOR(at), INTERVAL '30' SECOND)", SessionWindow(30_000)),
            ("TUMBLE((SELECT * FROM sales WHERE id > 1), DESCRIPTOR(at), INTERVAL '1' DAY)", TumblingWindow(86_400_000)),
        ],
    )  # fmt: skip
    def test_window_functions(self, call: str, window: object) -> None:
        node = only(plan(f"SELECT shop, window_start, window_time FROM TABLE({call})"), WindowTableFunction)
        assert (node.window, node.time, node.keys) == (window, 5, ())

    def test_sessions_have_keys(self) -> None:
        text = "SELECT * FROM TABLE(SESSION(TABLE sales PARTITION BY (shop, item), DESCRIPTOR(at), INTERVAL '5' SECOND)) AS w"
        assert only(plan(text), WindowTableFunction).keys == (1, 2)

    def test_window_columns_follow_those_of_the_table_and_do_not_clash(self) -> None:
        inner = "(SELECT id AS window_start, at FROM sales)"
        bound = bind(f"SELECT * FROM TABLE(TUMBLE({inner}, DESCRIPTOR(at), INTERVAL '1' MINUTE))")
        assert bound.names == ("window_start", "at", "window_start0", "window_end", "window_time")

    def test_windows_over_tables_of_with(self) -> None:
        text = "WITH t AS (SELECT at AS t FROM sales) SELECT window_end FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(t), INTERVAL '1' HOUR))"
        assert only(plan(text), WindowTableFunction).time == 0

    def test_a_window_of_group_by_becomes_a_window_function_below_the_group(self) -> None:
        node = plan(
            "SELECT shop, HOP_END(at, INTERVAL '1' SECOND, INTERVAL '5' SECOND), COUNT(*) FROM sales "
            "GROUP BY HOP(at, INTERVAL '1' SECOND, INTERVAL '5' SECOND), shop"
        )
        window, group = only(node, WindowTableFunction), only(node, GroupAggregate)
        assert window.window == SlidingWindow(5000, 1000)
        assert group.schema.names[:3] == ("shop", "window_start", "window_end")

    def test_the_keys_of_a_session_in_group_by_are_the_other_keys(self) -> None:
        window = only(
            plan("SELECT COUNT(*) FROM sales GROUP BY SESSION(at, INTERVAL '5' SECOND), UPPER(shop)"),
            WindowTableFunction,
        )
        assert window.schema.names[window.keys[0]] == "EXPR$6"

    def test_the_time_of_a_window_in_group_by_goes_on_as_window_time(self) -> None:
        node = plan(
            "SELECT TUMBLE_ROWTIME(at, INTERVAL '1' HOUR) AS t, COUNT(*) FROM sales GROUP BY TUMBLE(at, INTERVAL '1' HOUR)"
        )
        assert isinstance(node, Calc)
        assert str(node.projections[0]) == "window_time"


class TestOver:
    def test_all_calls_of_a_query_are_one_node(self) -> None:
        over = only(
            plan("SELECT SUM(pieces) OVER w, ROW_NUMBER() OVER (PARTITION BY item ORDER BY id DESC) FROM sales "
                 "WINDOW w AS (PARTITION BY shop ORDER BY at ROWS BETWEEN 3 PRECEDING AND CURRENT ROW)"),
            Over,
        )  # fmt: skip
        total, number = over.calls
        assert (total.partition, total.order, total.frame) == ((1,), (SortKey(5),), Frame(FrameUnit.ROWS, 3))
        assert (number.call.function, number.order, number.frame) == (
            "ROW_NUMBER",
            (SortKey(0, True, NullOrder.LAST),),
            None,
        )

    @pytest.mark.parametrize(
        ("frame", "expected"),
        [
            ("", Frame(FrameUnit.RANGE)),
            ("ROWS UNBOUNDED PRECEDING", Frame(FrameUnit.ROWS)),
            ("RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW", Frame(FrameUnit.RANGE)),
            ("RANGE BETWEEN INTERVAL '10' MINUTE PRECEDING AND CURRENT ROW", Frame(FrameUnit.RANGE, 600_000)),
            ("ROWS CURRENT ROW", Frame(FrameUnit.ROWS, 0)),
        ],
    )
    def test_frames(self, frame: str, expected: Frame) -> None:
        assert only(plan(f"SELECT COUNT(*) OVER (ORDER BY at {frame}) FROM sales"), Over).calls[0].frame == expected

    def test_a_window_may_extend_a_named_one(self) -> None:
        text = "SELECT COUNT(*) OVER (w ROWS 2 PRECEDING) FROM sales WINDOW w AS (PARTITION BY shop ORDER BY at)"
        assert only(plan(text), Over).calls[0].frame == Frame(FrameUnit.ROWS, 2)

    def test_lag_has_its_offset_and_default_spelt_out(self) -> None:
        call = only(
            plan("SELECT LAG(pieces) OVER (ORDER BY at), LEAD(pieces, 2, id) OVER (ORDER BY at) FROM sales"), Over
        ).calls
        assert [[str(a) for a in c.call.arguments] for c in call] == [
            ["pieces", "1", "NULL"], ["CAST(pieces AS BIGINT)", "2", "id"]
        ]  # fmt: skip
        assert [c.call.type for c in call] == [INT, BIGINT]


class TestOrder:
    def test_a_limit_is_a_rank_without_its_column(self) -> None:
        rank = only(plan("SELECT id FROM sales ORDER BY price DESC, 1 LIMIT 3 OFFSET 2"), Rank)
        assert (rank.first, rank.last, rank.rank_column, rank.partition) == (3, 5, False, ())
        assert rank.order == (SortKey(1, True, NullOrder.LAST), SortKey(0))

    def test_columns_that_only_the_order_needs_do_not_come_out(self) -> None:
        assert plan("SELECT id FROM sales ORDER BY price DESC LIMIT 3").schema.names == ("id",)

    def test_an_order_without_limit_is_a_sort(self) -> None:
        assert only(plan("SELECT id AS x FROM sales ORDER BY at, x DESC NULLS FIRST"), TemporalSort).order == (
            SortKey(1), SortKey(0, True, NullOrder.FIRST)
        )  # fmt: skip

    def test_the_order_of_a_subquery_means_nothing(self) -> None:
        assert not [
            n for n in nodes(plan("SELECT id FROM (SELECT id FROM sales ORDER BY at)")) if isinstance(n, TemporalSort)
        ]

    def test_limit_0_gives_nothing(self) -> None:
        node = plan("SELECT id FROM sales LIMIT 0")
        assert isinstance(node, Calc)
        assert str(node.condition) == "FALSE"


class TestGroupingSets:
    def test_columns_in_every_set_are_not_copied(self) -> None:
        expand = only(plan("SELECT shop, item, COUNT(*) FROM sales GROUP BY shop, ROLLUP(item)"), Expand)
        assert expand.schema.names[-2:] == ("item0", "GROUPING$SET")
        assert len(expand.projections) == 2

    def test_one_set_is_an_ordinary_group(self) -> None:
        assert not [
            n for n in nodes(plan("SELECT shop FROM sales GROUP BY GROUPING SETS ((shop))")) if isinstance(n, Expand)
        ]


class TestValuesAndUnions:
    def test_rows_get_common_types(self) -> None:
        node = plan("VALUES (1, 'a'), (3000000000, NULL)")
        assert isinstance(node, Values)
        assert [str(f) for f in node.schema] == ["EXPR$0 BIGINT NOT NULL", "EXPR$1 CHAR(1)"]

    def test_rows_that_are_no_constants_are_computed(self) -> None:
        assert isinstance(plan("VALUES (ARRAY[1]), (ARRAY[2, 3])"), Union)

    def test_a_chain_of_unions_is_one_node(self) -> None:
        node = plan("SELECT id FROM sales UNION ALL SELECT visit FROM visits UNION ALL SELECT opened FROM shops")
        assert isinstance(node, Union)
        assert len(node.members) == 3
        assert {m.schema for m in node.members} == {node.members[0].schema} or node.schema.types == (BIGINT,)


class TestCollections:
    def test_unnest(self) -> None:
        node = only(plan("SELECT visit, sku FROM visits LEFT JOIN UNNEST(`lines`) AS l (sku, n) ON TRUE"), Unnest)
        assert (node.collection, node.outer, node.ordinality) == (5, True, False)
        assert node.schema.names[-2:] == ("sku", "n")

    def test_one_column_takes_the_alias_of_the_table(self) -> None:
        assert bind("SELECT page FROM visits, UNNEST(pages) AS page").names == ("page",)


class TestUserFunctions:
    def functions(self) -> Catalog:
        known = catalog()
        known.functions["MASK"] = UserFunction("mask", FunctionKind.SCALAR, "mine:mask", (STRING, BIGINT), STRING)
        known.functions["LONGEST"] = UserFunction("longest", FunctionKind.AGGREGATE, "mine:Longest", (STRING,), STRING)
        known.functions["WORDS"] = UserFunction(
            "words", FunctionKind.TABLE, "mine:words", (STRING,), row(("word", STRING), ("size", INT))
        )
        return known

    def test_a_scalar_function_gets_the_types_it_declares(self) -> None:
        node = plan("SELECT MASK(item, pieces) AS m FROM sales", self.functions())
        assert isinstance(node, Calc)
        (call,) = node.projections
        assert isinstance(call, PythonCall)
        assert [str(a) for a in call.arguments] == ["item", "CAST(pieces AS BIGINT)"]

    def test_an_aggregate_stands_where_aggregates_stand(self) -> None:
        text = "SELECT shop, longest(item) AS l FROM sales GROUP BY shop"
        (call,) = only(plan(text, self.functions()), GroupAggregate).aggregates
        assert (call.function, call.name, call.reference is not None) == ("longest", "l", True)

    def test_a_table_function_reads_the_row_to_its_left(self) -> None:
        text = "SELECT id, w, size FROM sales LEFT JOIN LATERAL TABLE(words(item)) AS t (w, size) ON TRUE"
        call = only(plan(text, self.functions()), TableFunctionCall)
        assert (call.function, call.outer, call.schema.names[-2:]) == ("mine:words", True, ("word", "size"))


@pytest.mark.parametrize(
    "query",
    [
        "SELECT id, (SELECT COUNT(*) FROM visits v WHERE v.shop = s.shop) FROM sales s WHERE id IN (SELECT visit FROM visits) OR id < 3",
        "SELECT shop, RANK() OVER (ORDER BY SUM(pieces)) FROM sales GROUP BY shop HAVING MAX(id) > (SELECT MAX(visit) FROM visits)",
        "SELECT GROUPING(shop), TUMBLE_START(at, INTERVAL '1' HOUR) FROM sales GROUP BY TUMBLE(at, INTERVAL '1' HOUR), CUBE(shop, item)",
    ],
)  # fmt: skip
def test_nothing_pending_is_left_in_a_plan(query: str) -> None:
    assert pending(plan(query)) == []
