"""The REST API of the one job of a process: registered for the user's other commands, on loopback, and where the user says besides."""

from __future__ import annotations

from dataclasses import replace

from flowrun.core.clock import Clock, SystemClock
from flowrun.errors import FlowrunError
from flowrun.rest.doors import Door, close_doors, loopback_door
from flowrun.rest.served import OneJob
from flowrun.rest.server import RestServer
from flowrun.runners.control import HostedJob, JobControl
from flowrun.runners.job_document import JobDocument
from flowrun.runners.registry import JobEntry, JobRegistry, new_entry


class JobEndpoint:
    """A job's endpoint, from `open_endpoint` to `close`."""

    def __init__(self, control: JobControl, entry: JobEntry, doors: tuple[Door, ...], registry: JobRegistry) -> None:
        self.control = control
        self._entry = entry
        self._registry = registry
        self._server = RestServer(OneJob(entry.job_id, control), doors)
        self._closed = False

    @property
    def entry(self) -> JobEntry:
        """As it is registered."""
        return self._entry

    @property
    def doors(self) -> tuple[Door, ...]:
        """Where it listens; the first is that of the entry."""
        return self._server.doors

    def close(self) -> None:
        """Answer those who still wait, then leave the registry and close. Idempotent."""
        if self._closed:
            return
        self._closed = True
        self.control.linger()
        self._registry.remove(self._entry.job_id)
        self._server.close()


def open_endpoint(
    job: HostedJob,
    *,
    name: str,
    file: str,
    sources: frozenset[str] = frozenset(),
    checkpoints: bool = False,
    savepoints: str | None = None,
    document: JobDocument | None = None,
    takes_versions: bool = False,
    door: Door | None = None,
    registry: JobRegistry | None = None,
    clock: Clock | None = None,
) -> JobEndpoint:
    """Register a job of this process and answer those who want to see or control it, until `close`.

    Args:
        job: to be controlled.
        name: of its pipeline.
        file: of its pipeline, for people.
        sources: ids of the vertices that read from outside.
        checkpoints: whether it takes checkpoints, so that a stop ends with one.
        savepoints: where savepoints go if nobody says; None: where the job puts them.
        document: its text; None: nobody has it.
        takes_versions: whether this process can start another version of its pipeline in its place.
        door: by which it is to be reached besides, which is closed with it; None: nowhere else.
        registry: where it is entered; None: this user's.
        clock: time; the system's if None.

    Raises:
        ClusterError: it cannot be registered, or there is no loopback interface.
    """
    clock = SystemClock() if clock is None else clock
    registry = JobRegistry() if registry is None else registry
    entry = new_entry(job.job_id, name, file, 0, clock.now_ms())
    doors: tuple[Door, ...] = ()
    try:
        if door is not None and door.token_file is None:
            entry = replace(entry, token=door.token, page=door.url)
        doors = (loopback_door(entry.token),)
        entry = replace(entry, port=doors[0].port)
        registry.add(entry)
    except FlowrunError:
        close_doors(doors)
        raise
    control = JobControl(
        job,
        entry,
        sources,
        clock,
        checkpoints=checkpoints,
        savepoints=savepoints,
        document=document,
        takes_versions=takes_versions,
    )
    return JobEndpoint(control, entry, (*doors, *(() if door is None else (door,))), registry)
