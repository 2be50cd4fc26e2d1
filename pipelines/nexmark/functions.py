"""Python functions of the Nexmark pipelines: batches in, batches out."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def winners(windows: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.Array]:
    """From one row a window with arrays `candidates` (structs) and `scores`: the candidates whose score is the highest, `best`."""
    scores = windows.column("scores")
    parents = pc.list_parent_indices(scores)
    wins = pc.equal(pc.list_flatten(scores), windows.column("best").take(parents))
    candidates = pc.list_flatten(windows.column("candidates")).filter(wins)
    columns = dict(zip((f.name for f in candidates.type), candidates.flatten(), strict=True))
    return pa.record_batch(columns), pa.array(np.asarray(parents.filter(wins), dtype=np.int64))
