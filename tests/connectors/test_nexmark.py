"""nexmark: the published columns and distributions, and the same events for the same seed."""

from collections import Counter
from collections.abc import Mapping

import pytest

from flowrun.api.connector import TableDefinition
from flowrun.api.source import Boundedness, Source
from flowrun.connectors.nexmark import CONNECTOR, SCHEMA
from flowrun.core import types as t
from flowrun.core.options import parse_options
from flowrun.core.schema import Schema
from flowrun.errors import OptionError
from tests.connectors.reading import Reading


def nexmark(given: Mapping[str, object], schema: Schema = SCHEMA) -> Source:
    options, errors = parse_options(CONNECTOR.source_options, given, "connector 'nexmark'")
    assert not errors, errors
    assert CONNECTOR.create_source is not None
    return CONNECTOR.create_source(TableDefinition("events", schema, options, declared=SCHEMA))


def events(given: Mapping[str, object], **how: int) -> list[dict[str, object]]:
    rows = Reading(nexmark(given), **how).to_the_end()  # type: ignore[arg-type]
    return [dict(zip(SCHEMA.names, r, strict=True)) for r in rows]


def test_each_event_is_one_person_auction_or_bid_in_the_published_proportion() -> None:
    found = events({"events.num": 5000})
    assert Counter(e["event_type"] for e in found) == {0: 100, 1: 300, 2: 4600}
    for e in found:
        present = [name for name in ("person", "auction", "bid") if e[name] is not None]
        assert present == [("person", "auction", "bid")[e["event_type"]]]


def test_ids_refer_to_what_exists_and_hot_keys_are_hot() -> None:
    found = events({"events.num": 20_000})
    persons = {e["person"]["id"] for e in found if e["person"]}
    auctions = [e["auction"] for e in found if e["auction"]]
    bids = [e["bid"] for e in found if e["bid"]]
    assert sorted(persons) == list(range(1000, 1400))
    assert sorted(a["id"] for a in auctions) == list(range(1000, 2200))
    lead = 10
    assert all(1000 <= b["auction"] <= 2200 + lead and 1000 <= b["bidder"] <= 1400 + lead for b in bids)
    assert 0.4 < sum(b["auction"] % 100 == 0 for b in bids) / len(bids) < 0.6
    assert 0.65 < sum(b["bidder"] % 100 == 1 for b in bids) / len(bids) < 0.85
    assert all(a["expires"] > a["dateTime"] and a["reserve"] > a["initialBid"] for a in auctions)
    assert {a["category"] for a in auctions} == {10, 11, 12, 13, 14}
    assert {b["channel"] for b in bids} > {"Google", "Facebook", "Baidu", "Apple"}


def test_sizes_follow_the_averages_asked_for() -> None:
    found = events({"events.num": 5000, "bid.avg-size": "300b"})
    extras = [len(e["bid"]["extra"]) for e in found if e["bid"]]
    assert 240 < sum(extras) / len(extras) < 290


def test_event_time_advances_at_the_rate_and_disorder_stays_in_its_group() -> None:
    ordered = [
        next(e[n] for n in ("person", "auction", "bid") if e[n])["dateTime"] for e in events({"events.num": 2000})
    ]
    assert ordered == sorted(ordered)
    assert (ordered[-1] - ordered[0]).total_seconds() == pytest.approx(0.199)
    mixed = [
        next(e[n] for n in ("person", "auction", "bid") if e[n])["dateTime"]
        for e in events({"events.num": 2000, "out-of-order.group-size": 100})
    ]
    assert mixed != sorted(mixed)
    assert sorted(mixed) == ordered


def test_the_same_seed_gives_the_same_events_at_any_batch_size() -> None:
    assert events({"events.num": 700, "seed": 3}) == events({"events.num": 700, "seed": 3}, batch_rows=13)
    assert events({"events.num": 700, "seed": 3}) != events({"events.num": 700, "seed": 4})


def test_only_the_columns_asked_for_are_made() -> None:
    rows = Reading(nexmark({"events.num": 100}, SCHEMA.select(["bid"]))).to_the_end()
    assert [r[0] for r in rows] == [e["bid"] for e in events({"events.num": 100})]


def test_without_a_number_of_events_it_never_ends() -> None:
    assert nexmark({}).boundedness is Boundedness.UNBOUNDED
    assert nexmark({"stop-at": 10}).boundedness is Boundedness.BOUNDED


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"rate.shape": "sine"}, "square"),
        ({"next-event.rate": 5}, "must equal"),
        ({"base-time": "yesterday"}, "expects a timestamp"),
        ({"person.proportion": 0}, "at least 1"),
    ],
)
def test_options_it_cannot_honour_are_refused(given: dict[str, object], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        nexmark(given)


def test_a_schema_of_other_types_is_refused() -> None:
    with pytest.raises(OptionError, match="does not fit"):
        nexmark({}, Schema.of(bid=t.STRING))
