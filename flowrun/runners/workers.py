"""How many worker processes a job is given on this machine, and what each of them offers."""

from __future__ import annotations

from collections.abc import Iterator

from flowrun.api.source import KnowsRows
from flowrun.core.cores import usable_cores
from flowrun.core.resources import ResourceProfile
from flowrun.errors import PipelineError
from flowrun.graph.execution_graph import build_execution_graph
from flowrun.graph.job_graph import ChainedOperator, JobGraph
from flowrun.runtime.cluster.local_workers import WorkerNumbers
from flowrun.runtime.jobmaster.regions import regions
from flowrun.runtime.jobmaster.slots import scheduling_units
from flowrun.runtime.worker_slots import WorkerSlots

WORTH_PROCESSES_ROWS = 2_000_000
"""Bounded input below this is read by one process sooner than processes are started and connected."""


def choose_workers(job_graph: JobGraph, asked: int | None) -> WorkerNumbers | None:
    """The workers of a job; None: its subtasks run in this process.

    Args:
        job_graph: the job.
        asked: how many the user wants, 0: none; None: as many as its parallelism and this machine have use for.

    Raises:
        PipelineError: the job needs this process, and workers are asked for.
    """
    if asked == 0:
        return None
    needs_this_process = next(_in_process(job_graph), None)
    if asked is None:
        parallelism = max((v.parallelism for v in job_graph.vertices), default=1)
        number = min(parallelism, usable_cores())
        if number < 2 or needs_this_process is not None or not _is_worth_processes(job_graph):
            return None
        asked = number
    elif needs_this_process is not None:
        raise _needs_the_command(needs_this_process, f"--workers {asked} was asked for", "leave --workers out")
    return share_slots(job_graph, asked)


def worker_slots(job_graph: JobGraph, asked: int | None) -> list[WorkerSlots]:
    """What `choose_workers` gives as processes with free slots; one without a name is that of the command. Raises as it does."""
    numbers = choose_workers(job_graph, asked)
    if numbers is None:
        settings = job_graph.settings.slots
        return [WorkerSlots("", settings.number, ResourceProfile.of(settings.resources))]
    return [WorkerSlots(f"w{i + 1}", numbers.slots, numbers.resources) for i in range(numbers.workers)]


def check_runs_elsewhere(
    job_graph: JobGraph,
    but: str = "a job manager runs no subtasks itself",
    remedy: str = "run it with `flowrun run`",
) -> None:
    """Pass if all subtasks of a job may run in other processes.

    Args:
        job_graph: the job.
        but: why they have to.
        remedy: what the user can do otherwise.

    Raises:
        PipelineError: one needs the command's own.
    """
    needs_this_process = next(_in_process(job_graph), None)
    if needs_this_process is not None:
        raise _needs_the_command(needs_this_process, but, remedy)


def slots_needed(job_graph: JobGraph) -> int:
    """How many slots a job needs at one time."""
    graph = build_execution_graph(job_graph)
    return max(len(unit.slots) for unit in scheduling_units(graph, regions(graph)))


def _needs_the_command(found: tuple[ChainedOperator, str], but: str, remedy: str) -> PipelineError:
    operator, other_remedy = found
    return PipelineError.of(
        f"'{operator.name}' works in the command's own process only, and {but}",
        hint=f"{remedy}, or {other_remedy}",
        location=operator.written_at,
    )


def _in_process(job_graph: JobGraph) -> Iterator[tuple[ChainedOperator, str]]:
    """(operator, what else the user can do) where a source, lookup or sink is memory, a terminal or an open file of this process."""
    for operator in _operators(job_graph):
        for end in (operator.source, operator.sink, getattr(operator.factory, "source", None)):
            if getattr(end, "in_process", False):
                yield operator, getattr(end, "in_process_remedy", "write to another connector")
                break


def _operators(job_graph: JobGraph) -> Iterator[ChainedOperator]:
    return (operator for vertex in job_graph.vertices for operator in vertex.operators)


def _is_worth_processes(job_graph: JobGraph) -> bool:
    """Whether there is enough to do: unbounded input, or unknown or much bounded input."""
    total = 0
    for source in (operator.source for operator in _operators(job_graph) if operator.source is not None):
        rows = source.estimated_rows() if isinstance(source, KnowsRows) else None
        if rows is None:
            return True
        total += rows
    return total >= WORTH_PROCESSES_ROWS


def total_slots(job_graph: JobGraph) -> int:
    """How many slots the job needs at one time, or how many its settings say that there are."""
    number = job_graph.settings.slots.number
    return slots_needed(job_graph) if number is None else number


def share_slots(job_graph: JobGraph, workers: int) -> WorkerNumbers:
    """So many workers, each with the same share of the slots of a job and of the resources that its settings say that there are."""
    resources = ResourceProfile.of(job_graph.settings.slots.resources).share(workers)
    return WorkerNumbers(workers, -(-total_slots(job_graph) // workers), resources)
