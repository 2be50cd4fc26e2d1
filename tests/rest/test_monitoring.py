"""docs/monitoring: queries of the dashboard and of the alerts parse, and name metrics and labels that there are."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml

from flowrun.rest.metric_names import METRICS, PROCESS_METRICS
from flowrun.runtime.lifecycle import JobState

DOCS = Path(__file__).parents[2] / "docs"
DASHBOARD = json.loads((DOCS / "monitoring" / "grafana.json").read_text(encoding="utf-8"))
RULES = [
    rule
    for group in yaml.safe_load((DOCS / "monitoring" / "alerts.yaml").read_text(encoding="utf-8"))["groups"]
    for rule in group["rules"]
]
LABELS: dict[str, set[str]] = {m.series: {*m.scope.labels, *m.labels} - set(m.without) for m in METRICS} | {
    n: set() for n in PROCESS_METRICS
}
OF_PROMETHEUS = {"instance", "job"}


def dashboard_queries() -> Iterator[str]:
    for panel in DASHBOARD["panels"]:
        yield from (target["expr"] for target in panel.get("targets", ()))
    yield from (a["expr"] for a in DASHBOARD["annotations"]["list"] if "expr" in a)


def filled(query: str) -> str:
    """As Grafana sends it."""
    return query.replace("$__rate_interval", "1m").replace("$job", ".+")


QUERIES = sorted({*map(filled, dashboard_queries()), *(rule["expr"] for rule in RULES)})


def selectors(tree: Any) -> Iterator[Any]:
    """All vector selectors of a query."""
    if isinstance(tree, promql_parser.VectorSelector):
        yield tree
    for name in ("expr", "lhs", "rhs", "vector_selector"):
        if (inner := getattr(tree, name, None)) is not None:
            yield from selectors(inner)
    for inner in getattr(tree, "args", None) or ():
        yield from selectors(inner)


def named(query: str) -> set[str]:
    return {selector.name for selector in selectors(promql_parser.parse(query))}


@pytest.mark.parametrize("query", QUERIES)
def test_a_query_parses_and_asks_for_what_there_is(query: str) -> None:
    found = list(selectors(promql_parser.parse(query)))
    assert found
    for selector in found:
        assert selector.name in LABELS, selector.name
        for matcher in selector.matchers.matchers:
            assert matcher.name in LABELS[selector.name] | OF_PROMETHEUS, f"{selector.name} has no label {matcher.name}"
            if matcher.name == "state":
                assert set(matcher.value.split("|")) <= {state.value for state in JobState}
    for labels in re.findall(r"\b(?:by|on) \(([^)]*)\)", query):
        known = set().union(*(LABELS[selector.name] for selector in found)) | OF_PROMETHEUS
        assert {label.strip() for label in labels.split(",")} <= known


def test_the_tests_find_what_queries_name() -> None:
    assert named("sum by (a) (rate(x_total[5m])) / on (a) max(y{b='c'}) > 1 and z == 0") == {"x_total", "y", "z"}


def test_rates_are_taken_of_counters_alone_and_counters_are_not_shown_as_they_are() -> None:
    for query in QUERIES:
        for name in re.findall(r"\b(?:rate|increase)\(([A-Za-z_]+)", query):
            assert name.endswith("_total"), query
        for name in re.findall(r"\b(?:deriv|delta|max_over_time|avg_over_time)\(([A-Za-z_]+)", query):
            assert not name.endswith("_total"), query


def test_panels_have_room_titles_and_the_data_source_of_the_reader() -> None:
    taken: set[tuple[int, int]] = set()
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(ids) == len(set(ids))
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells
        assert panel["title"]
        assert panel["type"] == "row" or panel["datasource"]["uid"] == "${datasource}"
    assert [v["name"] for v in DASHBOARD["templating"]["list"]] == ["datasource", "job"]


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r["alert"])
def test_an_alert_says_what_happened_and_what_to_do(rule: dict[str, Any]) -> None:
    texts = rule["annotations"]
    assert "{{ $labels.job_name }}" in texts["summary"]
    assert len(texts["description"]) > 60
    assert rule["labels"]["severity"] in {"critical", "warning", "info"}
    # What a text names must be left over by the query.
    named_labels = set(re.findall(r"\$labels\.(\w+)", " ".join(texts.values())))
    grouped = re.findall(r"by \(([^)]*)\)", rule["expr"])
    kept = (
        set.intersection(*({label.strip() for label in labels.split(",")} for labels in grouped))
        if grouped
        else {"job_id", "job_name"}
    )
    assert named_labels <= kept


def test_alerts_are_listed_on_the_page() -> None:
    page = (DOCS / "metrics.md").read_text(encoding="utf-8")
    assert re.findall(r"`(Flowrun\w+)`", page) == [rule["alert"] for rule in RULES]
