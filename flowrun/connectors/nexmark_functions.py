"""The function that the published Nexmark queries define in Java, for scripts that name it."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from flowrun.api.user_functions import udf


@udf(result="BIGINT", arguments=["STRING", "STRING"], vectorised=True)
def count_char(text: pa.Array, character: pa.Array) -> pa.Array:
    """How often a character occurs in each text (query 14); NULL if either is NULL.

    >>> count_char(pa.array(["abcc", None]), pa.array(["c", "c"])).to_pylist()
    [2, None]
    """
    distinct = character.unique()
    if len(distinct) == 1 and distinct[0].is_valid:
        return pc.cast(pc.count_substring(text, distinct[0].as_py()), pa.int64())
    pairs = zip(text.to_pylist(), character.to_pylist(), strict=True)
    return pa.array([None if t is None or c is None else t.count(c) for t, c in pairs], pa.int64())
