"""Nexmark events as columns, computed from event numbers.

Ids, hot keys, prices and lengths follow the generator of the published benchmark (github nexmark/nexmark, `generator/model`);
the random numbers are flowrun's own, so that single values differ from those of other implementations, but their distributions do not.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from flowrun.connectors.counter_random import Int64s, random_uint64, scale_to_range, to_unit_interval
from flowrun.core.arrays import Bools
from flowrun.core.record import record
from flowrun.core.types import BIGINT, STRING, row, timestamp

_FIRST_ID = 1000
_FIRST_CATEGORY = 10
_CATEGORIES = 5
_ID_LEAD = 10
_HOT_GROUP = 100
_ACTIVE_PEOPLE = 1000
_IN_FLIGHT_AUCTIONS = 100
_CHANNELS = 10_000
_POOL = 1 << 13

PERSON = row(
    ("id", BIGINT),
    ("name", STRING),
    ("emailAddress", STRING),
    ("creditCard", STRING),
    ("city", STRING),
    ("state", STRING),
    ("dateTime", timestamp(3)),
    ("extra", STRING),
)
AUCTION = row(
    ("id", BIGINT),
    ("itemName", STRING),
    ("description", STRING),
    ("initialBid", BIGINT),
    ("reserve", BIGINT),
    ("dateTime", timestamp(3)),
    ("expires", timestamp(3)),
    ("seller", BIGINT),
    ("category", BIGINT),
    ("extra", STRING),
)
BID = row(
    ("auction", BIGINT),
    ("bidder", BIGINT),
    ("price", BIGINT),
    ("channel", STRING),
    ("url", STRING),
    ("dateTime", timestamp(3)),
    ("extra", STRING),
)
_FIRST_NAMES = ["Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter"]
_LAST_NAMES = ["Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris"]
_CITIES = pa.array(
    ["Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland", "Bend", "Redmond", "Seattle", "Kent", "Cheyenne"]
)
_STATES = pa.array(["AZ", "CA", "ID", "OR", "WA", "WY"])
_NAMES = pa.array([f"{first} {last}" for first in _FIRST_NAMES for last in _LAST_NAMES])
_HOT_CHANNELS = ("Google", "Facebook", "Baidu", "Apple")


@record
class EventConfig:
    """Parameters of the generator. Triples are for person, auction and bid. `base_time_ms` is None for the start of the job."""

    seed: int
    rate: int
    base_time_ms: int | None
    proportions: tuple[int, int, int]
    average_sizes: tuple[int, int, int]
    hot_auctions: int
    hot_bidders: int
    hot_sellers: int
    disorder: int


class NexmarkEvents:
    """Makes blocks of events, and holds the pools of strings that they draw from. It is used by one thread."""

    def __init__(self, config: EventConfig, origin_ms: int) -> None:
        self.config = config
        self.base_ms = origin_ms if config.base_time_ms is None else config.base_time_ms

    def block(self, start: int, count: int) -> EventBlock:
        """Events `start` … `start + count − 1`."""
        return EventBlock(self, start, count)

    def earliest_ms(self, number: int) -> int:
        """The earliest event time of all events from position `number` on: that of the first event of its group."""
        return self.base_ms + number // self.config.disorder * self.config.disorder * 1000 // self.config.rate

    def pool(self, stream: int, low: int, high: int) -> pa.Array:
        """Strings of `low` to `high` small letters, which are the same for the same seed and stream."""
        lengths = scale_to_range(random_uint64(self.config.seed, stream, 0, _POOL), low, max(high, low))
        letters = scale_to_range(random_uint64(self.config.seed, stream + 1, 0, int(lengths.sum())), 97, 122)
        offsets = np.zeros(_POOL + 1, np.int32)
        np.cumsum(lengths, out=offsets[1:])
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(letters.astype(np.uint8))]
        return pa.Array.from_buffers(pa.string(), _POOL, buffers)

    def _extra_pool(self, stream: int, kind: int, other_bytes: int) -> pa.Array:
        wanted = max(self.config.average_sizes[kind] - other_bytes, 0)
        spread = round(wanted * 0.2)
        return self.pool(stream, wanted - spread, wanted + max(spread - 1, 0))

    @cached_property
    def person_extras(self) -> pa.Array:
        """Texts that fill a person up to its average size."""
        return self._extra_pool(100, 0, 70)

    @cached_property
    def auction_extras(self) -> pa.Array:
        """Texts that fill an auction up to its average size."""
        return self._extra_pool(102, 1, 110)

    @cached_property
    def bid_extras(self) -> pa.Array:
        """Texts that fill a bid up to its average size."""
        return self._extra_pool(104, 2, 32)

    @cached_property
    def emails(self) -> pa.Array:
        """E-mail addresses such as `user@host.com`."""
        users, hosts = self.pool(106, 3, 6), self.pool(108, 3, 4)
        return pa.array([f"{u}@{h}.com" for u, h in zip(users.to_pylist(), hosts.to_pylist(), strict=True)])

    @cached_property
    def credit_cards(self) -> pa.Array:
        """Numbers of credit cards: four groups of four digits."""
        digits = [
            scale_to_range(random_uint64(self.config.seed, 110 + i, 0, _POOL), 0, 9999).tolist() for i in range(4)
        ]
        return pa.array([" ".join(f"{d:04d}" for d in group) for group in zip(*digits, strict=True)])

    @cached_property
    def item_names(self) -> pa.Array:
        """Short names of items."""
        return self.pool(114, 3, 19)

    @cached_property
    def descriptions(self) -> pa.Array:
        """Longer descriptions of items."""
        return self.pool(116, 3, 99)

    @cached_property
    def channels(self) -> tuple[pa.Array, pa.Array]:
        """Channel names and urls: the cold ones by number, then the four hot ones."""
        parts = [self.pool(118 + 2 * i, 3, 4).to_pylist() for i in range(3)]
        total = _CHANNELS + len(_HOT_CHANNELS)
        urls = [
            f"https://www.nexmark.com/{parts[0][i % _POOL]}/{parts[1][(i * 7 + i // _POOL) % _POOL]}/"
            f"{parts[2][(i * 13) % _POOL]}/item.htm?query=1"
            for i in range(total)
        ]
        # nine of ten cold channels have an id: the 31 bits of the number reversed, as in the published generator
        for i in range(_CHANNELS):
            if i % 10:
                urls[i] += f"&channel_id={int(f'{i:031b}'[::-1], 2)}"
        return pa.array([*(f"channel-{i}" for i in range(_CHANNELS)), *_HOT_CHANNELS]), pa.array(urls)


class EventBlock:
    """A range of events; each column is computed when asked for."""

    def __init__(self, events: NexmarkEvents, start: int, count: int) -> None:
        self._events = events
        self._config = events.config
        self._start = start
        self._count = count
        numbers = np.arange(start, start + count, dtype=np.int64)
        group = self._config.disorder
        # event numbers are permuted within a group, as in the published generator
        self._ids: Int64s = numbers if group == 1 else numbers // group * group + numbers * 953 % group
        persons, auctions, bids = self._config.proportions
        self._epochs, self._offsets = np.divmod(self._ids, persons + auctions + bids)
        self._is_person = self._offsets < persons
        self._is_auction = ~self._is_person & (self._offsets < persons + auctions)
        self._is_bid = ~(self._is_person | self._is_auction)
        self._times = events.base_ms + self._ids * 1000 // self._config.rate

    def column(self, name: str) -> pa.Array:
        """One column of the connector's schema."""
        match name:
            case "event_type":
                return pa.array((self._is_auction + 2 * self._is_bid).astype(np.int32))
            case "person":
                return self._sparse(self._is_person, self._persons)
            case "auction":
                return self._sparse(self._is_auction, self._auctions)
            case _:
                return self._sparse(self._is_bid, self._bids)

    def _sparse(self, mask: Bools, make: Callable[[npt.NDArray[np.intp]], pa.StructArray]) -> pa.Array:
        """A struct for each event of one kind, and NULL for the others: the structs are made densely, and spread by one `take`."""
        rows = np.flatnonzero(mask)
        dense = make(rows)
        if len(rows) == self._count:
            return dense
        positions = np.cumsum(mask) - 1
        return dense.take(pa.array(positions, mask=~mask))

    def _draw(self, stream: int, rows: npt.NDArray[np.intp], low: int, high: int | Int64s) -> Int64s:
        return scale_to_range(random_uint64(self._config.seed, stream, self._start, self._count)[rows], low, high)

    def _pick(self, pool: pa.Array, stream: int, rows: npt.NDArray[np.intp]) -> pa.Array:
        return pool.take(pa.array(self._draw(stream, rows, 0, len(pool) - 1)))

    def _moments(self, times: Int64s) -> pa.Array:
        return pa.array(times).view(pa.timestamp("ms"))

    def _last_person(self, rows: npt.NDArray[np.intp]) -> Int64s:
        persons = self._config.proportions[0]
        last: Int64s = self._epochs[rows] * persons + np.minimum(self._offsets[rows], persons - 1)
        return last

    def _last_auction(self, rows: npt.NDArray[np.intp]) -> Int64s:
        persons, auctions, _ = self._config.proportions
        offsets = self._offsets[rows] - persons
        epochs = self._epochs[rows] - (offsets < 0)
        offsets = np.where((offsets < 0) | (offsets >= auctions), auctions - 1, offsets)
        last: Int64s = epochs * auctions + offsets
        return last

    def _some_person(self, stream: int, rows: npt.NDArray[np.intp]) -> Int64s:
        people = self._last_person(rows) + 1
        active = np.minimum(people, _ACTIVE_PEOPLE)
        return people - active + self._draw(stream, rows, 0, active + _ID_LEAD - 1)

    def _some_auction(self, stream: int, rows: npt.NDArray[np.intp]) -> Int64s:
        last = self._last_auction(rows)
        first = np.maximum(last - _IN_FLIGHT_AUCTIONS, 0)
        return first + self._draw(stream, rows, 0, last - first + _ID_LEAD)

    def _prices(self, stream: int, rows: npt.NDArray[np.intp]) -> Int64s:
        bits = random_uint64(self._config.seed, stream, self._start, self._count)[rows]
        prices: Int64s = np.rint(10.0 ** (to_unit_interval(bits) * 6.0) * 100.0).astype(np.int64)
        return prices

    def _persons(self, rows: npt.NDArray[np.intp]) -> pa.StructArray:
        events = self._events
        return pa.StructArray.from_arrays(
            [
                pa.array(self._last_person(rows) + _FIRST_ID),
                self._pick(_NAMES, 1, rows),
                self._pick(events.emails, 2, rows),
                self._pick(events.credit_cards, 3, rows),
                self._pick(_CITIES, 4, rows),
                self._pick(_STATES, 5, rows),
                self._moments(self._times[rows]),
                self._pick(events.person_extras, 6, rows),
            ],
            fields=list(PERSON.arrow),
        )

    def _auctions(self, rows: npt.NDArray[np.intp]) -> pa.StructArray:
        events, config = self._events, self._config
        hot = self._draw(10, rows, 0, config.hot_sellers - 1) > 0
        hot_seller = self._last_person(rows) // _HOT_GROUP * _HOT_GROUP
        seller = np.where(hot, hot_seller, self._some_person(11, rows)) + _FIRST_ID
        first_bid = self._prices(12, rows)
        # an auction lasts on average until the next _IN_FLIGHT_AUCTIONS auctions have come
        ahead = _IN_FLIGHT_AUCTIONS * sum(config.proportions) // config.proportions[1] * 1000 // config.rate
        expires = self._times[rows] + 1 + self._draw(13, rows, 0, max(ahead * 2, 1) - 1)
        return pa.StructArray.from_arrays(
            [
                pa.array(self._last_auction(rows) + _FIRST_ID),
                self._pick(events.item_names, 14, rows),
                self._pick(events.descriptions, 15, rows),
                pa.array(first_bid),
                pa.array(first_bid + self._prices(16, rows)),
                self._moments(self._times[rows]),
                self._moments(expires),
                pa.array(seller),
                pa.array(self._draw(17, rows, _FIRST_CATEGORY, _FIRST_CATEGORY + _CATEGORIES - 1)),
                self._pick(events.auction_extras, 18, rows),
            ],
            fields=list(AUCTION.arrow),
        )

    def _bids(self, rows: npt.NDArray[np.intp]) -> pa.StructArray:
        events, config = self._events, self._config
        hot = self._draw(20, rows, 0, config.hot_auctions - 1) > 0
        hot_auction = self._last_auction(rows) // _HOT_GROUP * _HOT_GROUP
        auction = np.where(hot, hot_auction, self._some_auction(21, rows)) + _FIRST_ID
        hot = self._draw(22, rows, 0, config.hot_bidders - 1) > 0
        hot_bidder = self._last_person(rows) // _HOT_GROUP * _HOT_GROUP + 1
        bidder = np.where(hot, hot_bidder, self._some_person(23, rows)) + _FIRST_ID
        hot = self._draw(25, rows, 0, 1) > 0
        cold_channel = self._draw(26, rows, 0, _CHANNELS - 1)
        channel = pa.array(np.where(hot, _CHANNELS + self._draw(27, rows, 0, len(_HOT_CHANNELS) - 1), cold_channel))
        names, urls = events.channels
        return pa.StructArray.from_arrays(
            [
                pa.array(auction),
                pa.array(bidder),
                pa.array(self._prices(24, rows)),
                names.take(channel),
                urls.take(channel),
                self._moments(self._times[rows]),
                self._pick(events.bid_extras, 28, rows),
            ],
            fields=list(BID.arrow),
        )
