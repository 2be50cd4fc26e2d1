"""Buffer pools bound what is in flight, always let one batch go, and wake writers when there is room."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowrun.errors import ClusterError, InternalError, JobCancelledError
from flowrun.runtime.network.buffer_pool import GlobalBufferPool


def test_a_local_pool_borrows_up_to_its_limit_and_gives_back() -> None:
    shared = GlobalBufferPool(20)
    pool = shared.create_local(4, 10)
    assert shared.free_slots == 16
    assert pool.try_acquire(10) == 10
    assert shared.free_slots == 10
    assert pool.try_acquire(1) == 0
    pool.recycle(10)
    assert shared.free_slots == 16
    pool.close()
    assert shared.free_slots == 20


def test_a_batch_larger_than_the_pool_takes_all_of_it() -> None:
    pool = GlobalBufferPool(20).create_local(4, 10)
    assert pool.try_acquire(1_000) == 10


def test_with_the_global_pool_empty_one_batch_still_goes() -> None:
    shared = GlobalBufferPool(6)
    starved, greedy = shared.create_local(1, 10), shared.create_local(1, 10)
    assert greedy.try_acquire(5) == 5
    assert starved.try_acquire(8) == 1, "on its reserve alone"
    assert starved.try_acquire(1) == 0


def test_a_pool_without_its_reserve_is_refused() -> None:
    shared = GlobalBufferPool(5)
    shared.create_local(4, 8)
    with pytest.raises(ClusterError, match="2 slots needed for one more result partition or input gate, 1 of 5 left"):
        shared.create_local(2, 8)


def test_slots_cannot_be_returned_twice() -> None:
    pool = GlobalBufferPool(5).create_local(2, 4)
    with pytest.raises(InternalError, match="recycled twice"):
        pool.recycle(1)


def test_a_waiting_writer_goes_on_when_its_consumer_reads() -> None:
    pool = GlobalBufferPool(8).create_local(2, 4)
    pool.acquire(4)
    got: list[int] = []
    thread = threading.Thread(target=lambda: got.append(pool.acquire(3)))
    thread.start()
    pool.recycle(4)
    thread.join()
    assert got == [3]


def test_a_waiting_writer_goes_on_when_another_pool_gives_back() -> None:
    shared = GlobalBufferPool(8)
    one, other = shared.create_local(1, 8), shared.create_local(1, 8)
    other.acquire(7)
    one.acquire(1)
    got: list[int] = []
    thread = threading.Thread(target=lambda: got.append(one.acquire(3)))
    thread.start()
    other.recycle(7)
    thread.join()
    assert got == [3]


def test_cancel_wakes_a_waiting_writer() -> None:
    pool = GlobalBufferPool(8).create_local(2, 4)
    pool.acquire(4)
    raised: list[BaseException] = []

    def write() -> None:
        try:
            pool.acquire(1)
        except JobCancelledError as error:
            raised.append(error)

    thread = threading.Thread(target=write)
    thread.start()
    pool.cancel()
    thread.join()
    assert len(raised) == 1
    assert pool.try_acquire(1) == 0


def test_a_listener_is_called_once_there_is_as_much_room_as_it_asked_for() -> None:
    pool = GlobalBufferPool(8).create_local(2, 4)
    calls: list[int] = []
    assert pool.listen(1, lambda: calls.append(1)) is False, "there is room already"
    pool.acquire(2)
    pool.acquire(2)
    assert pool.listen(3, lambda: calls.append(3)) is True
    pool.recycle(2)
    assert calls == []
    pool.recycle(2)
    assert calls == [3]


def test_an_overdraft_goes_beyond_the_limit_and_not_at_the_cost_of_reserves() -> None:
    shared = GlobalBufferPool(12)
    pool = shared.create_local(1, 4, overdraft=3)
    other = shared.create_local(6, 8)
    assert pool.try_acquire(4) == 4
    assert not pool.has_room(1), "no step begins with an overdraft"
    assert not pool.try_overdraft(4)
    assert pool.try_overdraft(2)
    assert (pool.used, shared.free_slots) == (6, 0)
    assert not pool.try_overdraft(1), "what is left is reserved for another"
    assert other.try_acquire(6) == 6
    pool.recycle(1)
    assert not pool.has_room(1)
    assert pool.try_acquire(1) == 0
    pool.recycle(5)
    assert shared.free_slots == 5
    pool.cancel()
    assert not pool.try_overdraft(1)


@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.sampled_from(["take", "overdraw", "give", "close"]), st.integers(1, 12)),
        max_size=60,
    )
)
def test_slots_are_never_lost_or_made_up(steps: list[tuple[int, str, int]]) -> None:
    shared = GlobalBufferPool(24)
    pools = [shared.create_local(2, 8 + 4 * i, overdraft=2 * i) for i in range(3)]
    held: list[list[int]] = [[], [], []]
    closed: set[int] = set()
    for index, what, slots in steps:
        if what == "take" and index not in closed:
            taken = pools[index].try_acquire(slots)
            assert taken <= min(slots, pools[index].limit)
            assert taken or held[index], "an empty pool always lets a batch go"
            if taken:
                held[index].append(taken)
        elif what == "overdraw" and index not in closed:
            if pools[index].try_overdraft(slots):
                held[index].append(slots)
        elif what == "give" and held[index]:
            pools[index].recycle(held[index].pop())
        elif what == "close":
            pools[index].close()
            closed.add(index)
        assert 0 <= shared.free_slots <= 24
        assert all(p.used == sum(h) for p, h in zip(pools, held, strict=True))
        assert all(p.used <= p.limit + 2 * i for i, p in enumerate(pools))
    for pool, slots_held in zip(pools, held, strict=True):
        for slots in slots_held:
            pool.recycle(slots)
        pool.close()
    assert shared.free_slots == 24
