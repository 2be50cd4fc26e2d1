"""Python functions of the example pipelines: batches in, batches out."""

import re
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

import flowrun


def words(lines: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.Array]:
    """Each line's words in small letters, and for each word the position of its line."""
    letters_only = pc.replace_substring_regex(pc.utf8_lower(lines.column("line")), r"[^\p{L}\p{N}]+", " ")
    split = pc.utf8_split_whitespace(pc.utf8_trim_whitespace(letters_only))
    parents = pc.list_parent_indices(split)
    found = pc.list_flatten(split)
    kept = pc.not_equal(found, "")
    return pa.record_batch({"word": found.filter(kept)}), parents.filter(kept)


@flowrun.udtf(result="word STRING")
def words_of(line: str) -> Iterator[str]:
    """The same for SQL, a line at a time."""
    yield from re.findall(r"\w+", (line or "").lower())
