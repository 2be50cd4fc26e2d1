"""Hosts of a network on this machine: Linux network namespaces, and between them a wire that can delay, lose and drop what it carries.

Each host has one device, whose other end is read and written here, frame by frame: so the wire needs neither a bridge nor `tc netem`,
which not every kernel has, and a fault begins and ends at once. These ends are in a namespace of their own: a browser of another test
gives up what it loads whenever a device of its network comes or goes. It takes root and `ip` (iproute2).
"""

from __future__ import annotations

import ctypes
import heapq
import itertools
import os
import random
import select
import shutil
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

_CLONE_NEWNET = 0x40000000
_ALL_PROTOCOLS = 3
_SOL_PACKET, _PACKET_IGNORE_OUTGOING, _PACKET_VNET_HDR = 263, 23, 15
_VNET_BYTES = 10
"""Before each frame: whether its checksum is still to be computed, and how large segments are to be cut out of it."""
_MOST_BYTES = 1 << 17
_numbers = itertools.count()
"""Of the networks of this process: the kernel takes its time to forget the names of devices."""
_NETWORK = "10.211.77"


def _ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")


@cache
def why_no_hosts() -> str | None:
    """Why this machine has no network namespaces for tests; None: it has."""
    if sys.platform != "linux" or shutil.which("ip") is None:
        return "there is no `ip` command (iproute2)"
    if os.geteuid() != 0:
        return "network namespaces need root"
    try:
        with network("a"):
            return None
    except OSError as error:
        return f"network namespaces cannot be made here: {error}"


@dataclass
class Way:
    """From one host to another."""

    delay_s: float = 0.0
    loss: float = 0.0
    is_cut: bool = False
    is_reset: bool = False
    """Whether the next connection that carries rows is to be reset."""


@dataclass
class Host:
    """A host: its namespace, its address, and the end of its device that the wire has."""

    name: str
    namespace: str
    address: str
    mac: bytes
    end: socket.socket
    processes: list[subprocess.Popen[str]] = field(default_factory=list)

    def start(self, *arguments: object, cwd: Path) -> subprocess.Popen[str]:
        """Run `flowrun` there; it is killed when the network is taken down."""
        environment = {**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONPATH": str(Path(__file__).parents[2])}
        process = subprocess.Popen(
            ["ip", "netns", "exec", self.namespace, sys.executable, "-m", "flowrun", *map(str, arguments)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=cwd, env=environment,
        )  # fmt: skip
        self.processes.append(process)
        return process

    def run(self, *command: str) -> str:
        """What a command prints there."""
        inside = ["ip", "netns", "exec", self.namespace, *command]
        return subprocess.run(inside, capture_output=True, text=True, check=True).stdout


class Network:
    """Hosts by name, and the ways between them."""

    def __init__(self, hosts: dict[str, Host], seed: int = 0) -> None:
        self.hosts = hosts
        self.ways = {(a, b): Way() for a in hosts for b in hosts if a != b}
        self.carried = 0
        self.lost = 0
        self._chance = random.Random(seed)
        self._due: list[tuple[float, int, Host, bytes]] = []
        self._numbers = itertools.count()
        self._wake, self._waker = os.pipe()
        self._thread = threading.Thread(target=self._carry, name="wire")
        self._thread.start()

    def __getitem__(self, name: str) -> Host:
        return self.hosts[name]

    def between(self, one: str, other: str) -> tuple[Way, Way]:
        """Both ways between two hosts."""
        return self.ways[one, other], self.ways[other, one]

    def cut(self, one: str, *others: str) -> None:
        """Drop everything between a host and others (all, if none is named), without a word to either."""
        for other in others or (h for h in self.hosts if h != one):
            for way in self.between(one, other):
                way.is_cut = True

    def reset(self, one: str, other: str) -> None:
        """End one connection as soon as it carries rows again from one host to another, in the middle of what is under way."""
        way = self.ways[one, other]
        way.is_reset = True
        deadline = time.monotonic() + 30
        while way.is_reset:
            assert time.monotonic() < deadline, "no rows are under way"
            time.sleep(0.01)

    def heal(self) -> None:
        """Carry everything again."""
        for way in self.ways.values():
            way.is_cut = False

    def close(self) -> None:
        """Carry nothing more."""
        os.write(self._waker, b"x")
        self._thread.join()
        os.close(self._wake)
        os.close(self._waker)

    def _carry(self) -> None:
        ends = {host.end.fileno(): host for host in self.hosts.values()}
        while True:
            wait_s = max(self._due[0][0] - time.monotonic(), 0) if self._due else None
            ready, _, _ = select.select([*ends, self._wake], [], [], wait_s)
            if self._wake in ready:
                return
            for number in ready:
                self._take(ends[number])
            while self._due and self._due[0][0] <= time.monotonic():
                _, _, target, frame = heapq.heappop(self._due)
                with suppress(OSError):  # a device whose queue is full loses frames, as real ones do
                    target.end.send(frame)

    def _take(self, source: Host) -> None:
        with suppress(OSError):
            frame = source.end.recv(_MOST_BYTES)
            to = frame[_VNET_BYTES : _VNET_BYTES + 6]
            for target in self.hosts.values():
                if target is not source and (to[0] & 1 or to == target.mac):
                    way = self.ways[source.name, target.name]
                    self._send(way, target, frame)
                    if way.is_reset and (resets := _resets(frame)) is not None:
                        way.is_reset = False
                        self._send(way, target, resets[0])
                        self._send(way, source, resets[1])

    def _send(self, way: Way, target: Host, frame: bytes) -> None:
        if way.is_cut or self._chance.random() < way.loss:
            self.lost += 1
            return
        self.carried += 1
        heapq.heappush(self._due, (time.monotonic() + way.delay_s, next(self._numbers), target, frame))


_ETHERNET_BYTES, _IPV4, _TCP, _RST_ACK = 14, 0x0800, 6, 0x14
_ROWS_BYTES = 1000
"""More than what is not rows has in one segment."""


def _resets(frame: bytes) -> tuple[bytes, bytes] | None:
    """The end of the TCP connection that a frame with rows belongs to, for its target and for its source; None: it has no rows."""
    ethernet = frame[_VNET_BYTES : _VNET_BYTES + _ETHERNET_BYTES]
    ip = frame[_VNET_BYTES + _ETHERNET_BYTES :]
    if int.from_bytes(ethernet[12:]) != _IPV4 or ip[9] != _TCP:
        return None
    tcp = ip[(ip[0] & 15) * 4 : int.from_bytes(ip[2:4])]
    ports, sequence, acknowledged = tcp[:4], int.from_bytes(tcp[4:8]), int.from_bytes(tcp[8:12])
    size = len(tcp) - (tcp[12] >> 4) * 4
    if size < _ROWS_BYTES:
        return None
    there, back = ip[12:16] + ip[16:20], ip[16:20] + ip[12:16]
    follows = (sequence + size) % (1 << 32)
    return (
        bytes(_VNET_BYTES) + ethernet + _reset(there, ports, follows, acknowledged),
        bytes(_VNET_BYTES) + ethernet[6:12] + ethernet[:6] + ethernet[12:]
        + _reset(back, ports[2:] + ports[:2], acknowledged, follows),
    )  # fmt: skip


def _reset(addresses: bytes, ports: bytes, sequence: int, acknowledged: int) -> bytes:
    ip = struct.pack(">BBHHHBBH8s", 0x45, 0, 40, 0, 0, 64, _TCP, 0, addresses)
    tcp = struct.pack(">4sIIBBHHH", ports, sequence, acknowledged, 5 << 4, _RST_ACK, 0, 0, 0)
    ip = ip[:10] + _checksum(ip) + ip[12:]
    return ip + tcp[:16] + _checksum(addresses + struct.pack(">HH", _TCP, len(tcp)) + tcp) + tcp[18:]


def _checksum(data: bytes) -> bytes:
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return struct.pack(">H", ~total & 0xFFFF)


def _packet_socket(namespace: str) -> socket.socket:
    """A socket for the frames of devices in a namespace. A socket stays where it was made: here on a thread that goes there and ends."""

    def make() -> socket.socket:
        library = ctypes.CDLL(None, use_errno=True)
        with Path("/run/netns", namespace).open() as place:
            if library.setns(place.fileno(), _CLONE_NEWNET):
                number = ctypes.get_errno()
                raise OSError(number, os.strerror(number), namespace)
        return socket.socket(socket.AF_PACKET, socket.SOCK_RAW)

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(make).result()


@contextmanager
def network(*names: str) -> Iterator[Network]:
    """A network of these hosts, which is taken down with all processes on it.

    Raises:
        OSError: this machine does not allow it.
    """
    mark = f"fr{os.getpid()}x{next(_numbers)}"
    wire = f"{mark}-wire"
    hosts: dict[str, Host] = {}
    made: list[str] = []
    try:
        _ip("netns", "add", wire)
        made.append(wire)
        for number, name in enumerate(names, 1):
            namespace, device = f"{mark}-{name}", f"{mark}v{number}"
            _ip("netns", "add", namespace)
            made.append(namespace)
            _ip("-n", wire, "link", "add", device, "type", "veth", "peer", "name", "eth0", "netns", namespace)
            mac = bytes((2, 0, 0, 0, 77, number))
            inside = ("-n", namespace)
            _ip(*inside, "link", "set", "eth0", "address", mac.hex(":"))
            _ip(*inside, "addr", "add", f"{_NETWORK}.{number}/24", "dev", "eth0")
            for link in ("lo", "eth0"):
                _ip(*inside, "link", "set", link, "up")
            end = _packet_socket(wire)
            hosts[name] = Host(name, namespace, f"{_NETWORK}.{number}", mac, end)
            end.setsockopt(_SOL_PACKET, _PACKET_VNET_HDR, 1)
            end.setsockopt(_SOL_PACKET, _PACKET_IGNORE_OUTGOING, 1)
            end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
            end.bind((device, _ALL_PROTOCOLS))
            _ip("-n", wire, "link", "set", device, "up")
        running = Network(hosts)
        try:
            yield running
        finally:
            for host in hosts.values():
                for process in host.processes:
                    process.kill()
                    process.communicate()
            running.close()
    finally:
        for host in hosts.values():
            host.end.close()
        for namespace in made:
            _ip("netns", "del", namespace)  # with its devices
