"""Python functions of the Nexmark pipelines: batches in, batches out; `count_char` is called by q14.sql."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowrun.api.user_functions import udf


def winners(windows: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.Array]:
    """From one row a window with arrays `candidates` (structs) and `scores`: the candidates whose score is the highest, `best`."""
    scores = windows.column("scores")
    parents = pc.list_parent_indices(scores)
    wins = pc.equal(pc.list_flatten(scores), windows.column("best").take(parents))
    candidates = pc.list_flatten(windows.column("candidates")).filter(wins)
    columns = dict(zip((f.name for f in candidates.type), candidates.flatten(), strict=True))
    return pa.record_batch(columns), pa.array(np.asarray(parents.filter(wins), dtype=np.int64))


@udf(result="BIGINT", arguments=["STRING", "STRING"], vectorised=True)
def count_char(text: pa.Array, character: pa.Array) -> pa.Array:
    """How often a character occurs in each text (q14)."""
    characters = pc.unique(character)
    if len(characters) == 1 and characters[0].is_valid:
        return pc.cast(pc.count_substring(text, characters[0].as_py()), pa.int64())
    pairs = zip(text.to_pylist(), character.to_pylist(), strict=True)
    return pa.array([None if t is None or c is None else t.count(c) for t, c in pairs], pa.int64())
