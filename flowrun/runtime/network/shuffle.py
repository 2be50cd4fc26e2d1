"""The shuffle service as a process of a job sees it: who creates the partitions and gates of its subtasks.

After Apache Flink's `ShuffleEnvironment`: the executor of tasks knows this protocol only, so that exchanges may go by another way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from flowrun.graph.execution_graph import ExecutionVertex, IntermediateResultPartition, PartitionId
from flowrun.runtime.messages import PartitionLocation, ResultPartitionId
from flowrun.runtime.network.gate import InputGate
from flowrun.runtime.network.partition import ResultPartition

Locations = Mapping[PartitionId, PartitionLocation]
"""Where partitions are that subtasks read. What is not named is in this process."""


class ShuffleEnvironment(Protocol):
    """The worker side of the shuffle service: all partitions and gates of one job in this process. Thread-safe."""

    def create_partition(self, description: IntermediateResultPartition, attempt_id: str) -> ResultPartition:
        """The partition that one attempt of a producer subtask writes for one edge, open for consumers from now on.

        What an earlier attempt wrote is released: its readers have ended with it.

        Raises:
            ClusterError: no buffer slots are left for it.
        """
        ...

    def create_gates(self, vertex: ExecutionVertex, batch_rows: int, locations: Locations) -> list[InputGate]:
        """One gate a logical input, by input index; several edges of one input become a union gate.

        Raises:
            ClusterError: no buffer slots are left for one, or a partition is where this process cannot read it.
            PartitionLostError: a blocking partition is not there any more.
        """
        ...

    def release_partitions(self, partitions: Sequence[ResultPartitionId]) -> None:
        """Drop some partitions, and delete what of them was spilled, whichever process of this host wrote it."""
        ...

    def release(self, *, keep_files: bool = False) -> None:
        """Drop all partitions and delete spilled files. Idempotent.

        Args:
            keep_files: leave what outlives this process to the others: the job may go on without it.
        """
        ...

    def spill_folder(self) -> Path:
        """The job's folder for files that live no longer than the job; made when it is first asked for."""
        ...
