"""Calls between processes as a stateful property: in order, at most once, answered or failed in time, and by nobody whose token is stale.

Real connections, frames, endpoints and heartbeats over simulated bytes. A leader serves a fenced endpoint, on a main thread of its own; it
loses the lead and gets another one. Members keep a connection to it: they come again, with growing pauses, when theirs is over.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Protocol

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from flowrun.errors import ClusterError, FencingError
from flowrun.runtime.cluster.task_manager import FIRST_RETRY_S, LONGEST_RETRY_S
from flowrun.runtime.mailbox import Mail
from flowrun.runtime.rpc.connection import CALL_TIMEOUT_MS, RpcConnection
from flowrun.runtime.rpc.handshake import Introduction, Purpose
from flowrun.runtime.rpc.heartbeats import INTERVAL_MS, TIMEOUT_MS, Heartbeats
from flowrun.runtime.rpc.link import Link
from tests.examples import examples
from tests.runtime.simulation.streams import VirtualStream, stream_pair
from tests.runtime.simulation.virtual_time import Process, VirtualTime

PICK = st.integers(0, 99)
DELAY_MS = st.sampled_from([0, 1, 30, 2_000])


class LeaderGateway(Protocol):
    """What members call."""

    def register(self, member: str, session: int) -> None: ...

    def note(self, session: int, number: int) -> None: ...

    def double(self, session: int, number: int) -> int: ...


class Connection(RpcConnection):
    """One end of a connection whose threads are events."""

    def __init__(self, process: Process, stream: VirtualStream, peer: str) -> None:
        super().__init__(
            Link(stream, Introduction("any", peer), Purpose.CONTROL, peer), process.clock, self._answer_soon
        )
        self.process = process
        self.stream = stream
        self.heartbeats = Heartbeats(self, process.timers, process.clock)

    def start(self) -> None:
        self.stream.read_with(self.read_next)
        self.heartbeats.start()

    def abandon(self, reason: str) -> None:
        self.process.soon(lambda: self._end(reason))

    def _answer_soon(self, work: Callable[[], None]) -> bool:
        self.process.soon(work, 20)
        return True


class Leader:
    """Serves members. What it is called, it remembers with the token of that moment."""

    def __init__(self, time: VirtualTime) -> None:
        self.process = Process(time, "leader")
        self.token: str | None = "1"
        self.registered: dict[str, int] = {}
        """Member → its last session."""
        self.noted: dict[int, list[int]] = {}
        """Session → numbers, in their order."""
        self.doubled: set[int] = set()
        self.connections: list[Connection] = []
        self.wrong: list[str] = []
        """What must not have happened: an error of a target would only be logged, or told to the caller."""
        self._mails: deque[Mail] = deque()

    def accept(self, stream: VirtualStream, session: int) -> None:
        connection = Connection(self.process, stream, f"session {session}")
        connection.serve("open", LeaderGateway, self)
        connection.serve("fenced", LeaderGateway, Fenced(self), lambda: self.token)
        connection.serve("posted", LeaderGateway, Fenced(self), lambda: self.token, self._post)
        self.connections.append(connection)
        connection.start()

    def _post(self, mail: Mail) -> bool:
        self._mails.append(mail)
        self.process.soon(self._run, 100)
        return True

    def _run(self) -> None:
        self._mails.popleft()()

    def register(self, member: str, session: int) -> None:
        if session <= self.registered.get(member, 0):
            self.wrong.append("an old session takes the place of a new one")
        self.registered[member] = session
        self.noted[session] = []

    def note(self, session: int, number: int) -> None:
        self.noted[session].append(number)

    def double(self, session: int, number: int) -> int:
        if number in self.doubled:
            self.wrong.append("a call is carried out twice")
        self.doubled.add(number)
        return 2 * number


class Fenced:
    """What only those may call who know the token."""

    def __init__(self, leader: Leader) -> None:
        self._leader = leader

    def register(self, member: str, session: int) -> None:
        self._leader.wrong.append("nobody calls it")

    def note(self, session: int, number: int) -> None:
        """Numbers of fenced calls say with which token they were made."""
        if str(number) != self._leader.token:
            self._leader.wrong.append("a call with a stale token was carried out")

    def double(self, session: int, number: int) -> int:
        if self._leader.token is None:
            self._leader.wrong.append("a call was carried out while nobody leads")
        return self._leader.double(session, number)


class Member:
    """Keeps a connection to the leader."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.process = Process(world.time, name)
        self.connection: Connection | None = None
        self.session = 0
        self.sent: dict[int, int] = {}
        """Session → how many notes were written."""
        self._pause_s = FIRST_RETRY_S
        self.process.soon(self.connect)

    def connect(self) -> None:
        """Connect, or try again after a pause that grows."""
        leader = self.world.leader
        if self.world.is_cut or leader.process.is_stopped:
            self.process.after(1000 * self._pause_s, self.connect)
            self._pause_s = min(2 * self._pause_s, LONGEST_RETRY_S)
            return
        self._pause_s = FIRST_RETRY_S
        self.session = session = next(self.world.sessions)
        ours, theirs = stream_pair(self.process, leader.process, self.world.delay_ms)
        self.connection = Connection(self.process, ours, "leader")
        self.connection.on_close(lambda _: self.process.soon(self.connect))
        leader.accept(theirs, session)
        self.connection.start()
        self.sent[session] = 0
        self.connection.gateway(LeaderGateway, "open").register(self.name, session)

    def gateway(self, endpoint: str, token: str = "") -> LeaderGateway | None:
        """The leader, if there is a connection."""
        if self.connection is None or self.connection.is_closed or self.process.is_stopped:
            return None
        return self.connection.gateway(LeaderGateway, endpoint, token)


class World:
    """A leader, its members, and the network between them."""

    def __init__(self, seed: int) -> None:
        self.time = VirtualTime(seed)
        self.delay_ms = self.time.chance.choice([0.1, 20.0, 400.0])
        self.is_cut = False
        self.last_token = "1"
        self.sessions = itertools.count(1)
        self.numbers = itertools.count(1)
        self.leader = Leader(self.time)
        self.members = [Member(self, f"m{i}") for i in range(self.time.chance.randint(1, 3))]

    def streams(self) -> list[VirtualStream]:
        return [end for c in self.leader.connections for end in (c.stream, c.stream.other)]


class Calls(RuleBasedStateMachine):
    """Members call, processes hang, connections break and are cut, and the lead changes, also while calls are under way."""

    @initialize(seed=st.integers(0, 2**32))
    def begin(self, seed: int) -> None:
        self.world = World(seed)

    def member(self, pick: int) -> Member:
        return self.world.members[pick % len(self.world.members)]

    def later(self, delay_ms: int, call: Callable[[], None]) -> None:
        self.world.time.after(delay_ms, call)

    @rule(ms=st.sampled_from([1, 100, 3_000, 60_000]))
    def go_on(self, ms: int) -> None:
        self.world.time.run_for(ms)

    @rule(pick=PICK, count=st.integers(1, 20))
    def note(self, pick: int, count: int) -> None:
        member = self.member(pick)
        for _ in range(count):
            leader = member.gateway("open")
            if leader is not None:
                try:
                    leader.note(member.session, member.sent[member.session])
                except ClusterError:
                    return
                member.sent[member.session] += 1

    @rule(pick=PICK, fenced=st.sampled_from(["open", "fenced", "posted"]), is_stale=st.booleans())
    def ask(self, pick: int, fenced: str, is_stale: bool) -> None:
        """A call that is answered: with the answer, or with an error within its time."""
        member, leader = self.member(pick), self.world.leader
        token = "0" if is_stale else leader.token or "0"
        gateway = member.gateway(fenced, "" if fenced == "open" else token)
        if gateway is None:
            return
        connection = member.connection
        assert connection is not None
        number, began_ns = next(self.world.numbers), self.world.time.monotonic_ns()
        try:
            assert gateway.double(member.session, number) == 2 * number
            assert number in leader.doubled
            assert fenced == "open" or token != "0", "a stale token was good enough"
        except FencingError:
            assert fenced != "open"
            assert number not in leader.doubled, "a call was refused and carried out"
        except ClusterError as error:
            waited_ms = (self.world.time.monotonic_ns() - began_ns) / 1e6
            waits_in_vain = "did not answer" in error.message and connection.is_closed
            assert not waits_in_vain
            assert waited_ms <= CALL_TIMEOUT_MS + 1, "a call waits for longer than it may"

    @rule(pick=PICK, posted=st.booleans())
    def note_fenced(self, pick: int, posted: bool) -> None:
        """A call that nobody waits for: it is carried out by who knows the token of that moment, or dropped."""
        token = self.world.leader.token or self.world.last_token
        self.world.last_token = token
        gateway = self.member(pick).gateway("posted" if posted else "fenced", token)
        if gateway is not None:
            try:
                gateway.note(0, int(token))
            except ClusterError:
                return

    @rule(delay_ms=DELAY_MS, leads=st.booleans())
    def change_lead(self, delay_ms: int, leads: bool) -> None:
        token = str(next(self.world.numbers) + 1_000_000) if leads else None
        self.later(delay_ms, partial(setattr, self.world.leader, "token", token))

    @rule(delay_ms=DELAY_MS)
    def reset(self, delay_ms: int) -> None:
        def break_one() -> None:
            streams = self.world.streams()
            if streams:
                self.world.time.chance.choice(streams).reset()

        self.later(delay_ms, break_one)

    @rule(pick=PICK, delay_ms=DELAY_MS)
    def close(self, pick: int, delay_ms: int) -> None:
        """The leader says good-bye to a member."""

        def close_one() -> None:
            living = [c for c in self.world.leader.connections if not c.is_closed]
            if living and not self.world.leader.process.is_stopped:
                living[pick % len(living)].close("it had enough")

        self.later(delay_ms, close_one)

    @rule(pick=PICK, is_leader=st.booleans(), ms=st.sampled_from([500, 20_000, 120_000]))
    def hang(self, pick: int, is_leader: bool, ms: int) -> None:
        process = self.world.leader.process if is_leader else self.member(pick).process
        process.stop()
        self.later(ms, process.go_on)

    @rule(pick=PICK)
    def vanish(self, pick: int) -> None:
        """The machine of a member is gone, without a word; another process, whose name is its own, takes its place."""
        place = pick % len(self.world.members)
        self.world.members[place].process.die()
        self.world.members[place] = Member(self.world, f"m{next(self.world.numbers)} instead")

    @precondition(lambda self: not self.world.is_cut)
    @rule(ms=st.sampled_from([500, 20_000, 120_000]))
    def cut(self, ms: int) -> None:
        self.world.is_cut = True
        for stream in self.world.streams():
            stream.incoming.cut()
        self.later(ms, self.mend)

    def mend(self) -> None:
        self.world.is_cut = False
        for stream in self.world.streams():
            stream.incoming.mend()

    def teardown(self) -> None:
        """Left alone, all members have a connection again, of which both ends know; and every note has come that could."""
        if not hasattr(self, "world"):
            return
        self.world.time.run_for(2 * 120_000)  # what hangs goes on, and who was silent for too long is given up
        self.world.time.run_for(2 * TIMEOUT_MS + 10 * INTERVAL_MS)
        leader = self.world.leader
        assert not leader.wrong
        for member in self.world.members:
            assert member.connection is not None
            assert not member.connection.is_closed
            assert leader.registered[member.name] == member.session
            assert not member.connection._pending, "a call waits for ever"
            for session, sent in member.sent.items():
                came = leader.noted.get(session, [])
                assert came == list(range(len(came))), "calls came in another order, or one is missing between others"
                assert len(came) == sent or session != member.session, "a call was lost on a connection that lives"
        living = [connection for connection in leader.connections if not connection.is_closed]
        assert len(living) == len(self.world.members), "a connection is kept whose other end is gone"


class Everyday(Calls):
    """A few of them."""


class Exhaustive(Calls):
    """Many."""


Everyday.TestCase.settings = examples(5, stateful_step_count=20)
TestEveryday = Everyday.TestCase
Exhaustive.TestCase.settings = examples(60, stateful_step_count=50)
TestExhaustive = pytest.mark.exhaustive(Exhaustive.TestCase)
