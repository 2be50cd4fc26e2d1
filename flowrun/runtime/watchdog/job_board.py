"""The activity board of one job."""

from __future__ import annotations

from flowrun.core.printable import printable
from flowrun.graph.job_graph import JobGraph
from flowrun.masking import masked
from flowrun.runtime.watchdog.board import ActivityBoard, SubtaskActivity, SubtaskNames


class JobBoard(ActivityBoard):
    """A slot for each subtask of a job, whichever of its executions is running. Close it when the job is over."""

    def __init__(self, job_graph: JobGraph) -> None:
        names = list[SubtaskNames]()
        self._slots = dict[tuple[str, int], int]()
        for vertex in job_graph.vertices:
            operators = tuple(_shown(operator.name) for operator in vertex.operators)
            for subtask in range(vertex.parallelism):
                self._slots[vertex.vertex_id, subtask] = len(names)
                names.append(SubtaskNames(f"{_shown(vertex.name)} ({subtask + 1}/{vertex.parallelism})", operators))
        super().__init__(names)

    def slot_of(self, vertex_id: str, subtask: int) -> SubtaskActivity | None:
        """The slot of a subtask; None: the job had no such subtask when the board was made, as it has been rescaled since."""
        slot = self._slots.get((vertex_id, subtask))
        return None if slot is None else self.slot(slot)


def _shown(name: str) -> str:
    return printable(masked(name))
