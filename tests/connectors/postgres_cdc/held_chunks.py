"""`python -m tests.connectors.postgres_cdc.held_chunks N ARGUMENT…`: `flowrun` that reads N chunks of a table and waits before the next."""

from __future__ import annotations

import itertools
import sys
import threading

from flowrun.cli.main import main
from flowrun.connectors.postgres_cdc.chunks import Chunk
from flowrun.connectors.postgres_cdc.parallel_chunks import ParallelChunks

if __name__ == "__main__":
    most, given, next_chunk = int(sys.argv[1]), itertools.count(), ParallelChunks._next

    def held(chunks: ParallelChunks) -> Chunk | None:
        if next(given) >= most:
            threading.Event().wait()
        return next_chunk(chunks)

    setattr(ParallelChunks, "_next", held)  # noqa: B010
    sys.argv = ["flowrun", *sys.argv[2:]]
    main()
