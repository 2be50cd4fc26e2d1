"""Resources: what operators ask for, what a slot has, and how many slots there are."""

from __future__ import annotations

from math import ceil

from flowrun.core.record import record
from flowrun.errors import PipelineError

DEFAULT_SLOT_REQUEST_TIMEOUT_MS = 300_000
"""How long a job waits for slots: Flink's `slot.request.timeout`."""

_MEBIBYTE = 1 << 20


@record
class ResourceSpec:
    """Resources of one subtask, or of one slot of a slot sharing group; 0 means unspecified. Chained operators add up.

    Raises:
        PipelineError: they are negative or no numbers.
    """

    cpu_cores: float = 0.0
    memory_bytes: int = 0

    def __post_init__(self) -> None:
        if not (0 <= self.cpu_cores < float("inf")) or self.memory_bytes < 0:
            raise PipelineError.of(
                f"resources are at least 0 and finite, got {self.cpu_cores} cores and {self.memory_bytes} bytes",
                hint="leave out what is not to be said; it counts as 0",
            )

    def merge(self, other: ResourceSpec) -> ResourceSpec:
        """The resources of both in one task.

        >>> ResourceSpec(0.1, 10).merge(ResourceSpec(0.2, 5))
        ResourceSpec(cpu_cores=0.3, memory_bytes=15)
        """
        return ResourceSpec(round(self.cpu_cores + other.cpu_cores, 6), self.memory_bytes + other.memory_bytes)

    @property
    def is_unspecified(self) -> bool:
        """Whether nothing is asked for."""
        return not self.cpu_cores and not self.memory_bytes

    def __str__(self) -> str:
        return str(ResourceProfile.of(self))


@record
class ResourceProfile:
    """What a slot or a worker has, or what is asked of a slot.

    None means unknown. A request that does not say how much it needs gets an equal share of its worker, as in Apache Flink; a worker
    that does not say how much it has gives whatever is asked for.

    Attributes:
        cpu_millis: thousandths of a CPU core, so that shares add up exactly.
        memory_bytes: as said.
    """

    cpu_millis: int | None = None
    memory_bytes: int | None = None

    @staticmethod
    def of(spec: ResourceSpec) -> ResourceProfile:
        """What is asked for; a part of a thousandth counts as a whole one.

        >>> ResourceProfile.of(ResourceSpec(0.5))
        ResourceProfile(cpu_millis=500, memory_bytes=None)
        """
        return ResourceProfile(ceil(round(spec.cpu_cores * 1000, 3)) or None, spec.memory_bytes or None)

    def share(self, slots: int | None) -> ResourceProfile:
        """What one of so many equal slots of a worker has; unknown if there may be any number of them.

        >>> ResourceProfile(1000, 9).share(2)
        ResourceProfile(cpu_millis=500, memory_bytes=4)
        """
        if slots is None:
            return ResourceProfile()
        cpu, memory = self.cpu_millis, self.memory_bytes
        return ResourceProfile(None if cpu is None else cpu // slots, None if memory is None else memory // slots)

    def otherwise(self, default: ResourceProfile) -> ResourceProfile:
        """This one, with what is unknown taken from `default`."""
        return ResourceProfile(
            default.cpu_millis if self.cpu_millis is None else self.cpu_millis,
            default.memory_bytes if self.memory_bytes is None else self.memory_bytes,
        )

    def plus(self, other: ResourceProfile) -> ResourceProfile:
        """Both together; what is unknown counts nothing."""
        return ResourceProfile(
            (self.cpu_millis or 0) + (other.cpu_millis or 0), (self.memory_bytes or 0) + (other.memory_bytes or 0)
        )

    def at_least(self, other: ResourceProfile) -> ResourceProfile:
        """The larger of both; unknown where both are.

        >>> ResourceProfile(1000).at_least(ResourceProfile(500, 7))
        ResourceProfile(cpu_millis=1000, memory_bytes=7)
        """
        cpus = [c for c in (self.cpu_millis, other.cpu_millis) if c is not None]
        memories = [m for m in (self.memory_bytes, other.memory_bytes) if m is not None]
        return ResourceProfile(max(cpus, default=None), max(memories, default=None))

    def covers(self, needed: ResourceProfile) -> bool:
        """Whether a worker that has this can give `needed`.

        >>> ResourceProfile(1000).covers(ResourceProfile(1000, 1 << 40)), ResourceProfile(1000).covers(ResourceProfile(1001))
        (True, False)
        """
        return (self.cpu_millis is None or (needed.cpu_millis or 0) <= self.cpu_millis) and (
            self.memory_bytes is None or (needed.memory_bytes or 0) <= self.memory_bytes
        )

    def masks(self, other: ResourceProfile) -> ResourceProfile:
        """The parts of another that are known of this one, for messages.

        >>> ResourceProfile(1000).masks(ResourceProfile(500, 7))
        ResourceProfile(cpu_millis=500, memory_bytes=None)
        """
        return ResourceProfile(
            None if self.cpu_millis is None else other.cpu_millis,
            None if self.memory_bytes is None else other.memory_bytes,
        )

    def __str__(self) -> str:
        parts = [] if self.cpu_millis is None else [f"{self.cpu_millis / 1000:g} cpu"]
        if self.memory_bytes is not None:
            parts.append(f"{self.memory_bytes / _MEBIBYTE:g} MiB")
        return " and ".join(parts) or "no resources named"


@record
class SlotSharingGroup:
    """A slot sharing group by its name, with what each of its slots has.

    Attributes:
        name: only operators of groups of one name share slots.
        cpu: cores of a slot; 0: the sum of what its operators ask for.
        memory: bytes of a slot; 0: likewise.
    """

    name: str
    cpu: float = 0.0
    memory: int = 0

    def __post_init__(self) -> None:
        ResourceSpec(self.cpu, self.memory)  # which checks them
        if not self.name:
            raise PipelineError.of("a slot sharing group has no name", hint="give it one, or leave it out: 'default'")

    @property
    def resources(self) -> ResourceSpec:
        """Cores and memory of a slot."""
        return ResourceSpec(self.cpu, self.memory)


@record
class SlotSettings:
    """The slots of a cluster that is made for one job, and how long the job waits for them.

    Attributes:
        number: how many there are; None: as many as the job asks for.
        resources: CPU cores and memory that they divide among them; 0: as much as is asked for.
        request_timeout_ms: how long the job waits until enough of them are free; 0: for ever.
    """

    number: int | None = None
    resources: ResourceSpec = ResourceSpec()
    request_timeout_ms: int = DEFAULT_SLOT_REQUEST_TIMEOUT_MS
