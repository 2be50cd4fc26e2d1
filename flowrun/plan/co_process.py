"""Python functions of two streams as nodes: both keyed, neither, or the second one broadcast."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from flowrun.core.schema import Schema
from flowrun.core.semantics import NullKeys
from flowrun.errors import InternalError
from flowrun.plan.description import Rows, input_node, node, parameter, positions, user_function
from flowrun.plan.nodes import PlanNode


@node(rows=Rows.USER)
class CoProcess(PlanNode):
    """A Python function of two streams, with state and timers a key if both have keys, or the first one beside a broadcast stream.

    The function is one of `flowrun.api.co_process_function`, or of `flowrun.api.broadcast_function`.

    Attributes:
        left: the first input.
        right: the second input.
        function: `module:Class`, looked up in the folders of `search_path` before Python's own path.
        arguments: of the class, by name.
        left_keys: positions of the key columns in the first input; None: it has no keys.
        right_keys: of as many columns of the second input, of equal types; None: it has no keys.
        broadcast: every subtask gets all rows of the second input, which then has no keys.
        null_keys: what happens to rows of either input one of whose keys is NULL.
        side_outputs: columns of the side outputs, by tag.
        tables: columns of the tables of its keyed state, by name, which the front end has looked at; None: nobody has.
    """

    left: PlanNode = input_node()
    right: PlanNode = input_node()
    function: str = user_function()
    arguments: Mapping[str, object] = parameter(default_factory=dict)
    left_keys: tuple[int, ...] | None = positions("left", default=None)
    right_keys: tuple[int, ...] | None = positions("right", default=None)
    broadcast: bool = parameter(default=False)
    null_keys: NullKeys = parameter(default=NullKeys.FAIL)
    side_outputs: Mapping[str, Schema] = parameter(default_factory=dict)
    search_path: tuple[str, ...] = parameter(default=())
    tables: tuple[tuple[str, pa.Schema], ...] | None = parameter(default=None)

    def __post_init__(self) -> None:
        """Both inputs have keys, or neither; of a broadcast stream rows have none."""
        left, right = self.left_keys, self.right_keys
        alike = (
            right is None
            if self.broadcast
            else (left is None) == (right is None) and len(left or ()) == len(right or ())
        )
        if not alike:
            raise InternalError(f"a function of two streams has keys {left} and {right}")

    @property
    def keys(self) -> tuple[tuple[int, ...] | None, tuple[int, ...] | None]:
        """Of each input the positions of its key columns."""
        return self.left_keys, self.right_keys

    @property
    def key_names(self) -> tuple[str, ...]:
        """What rows meet by, for explain: `id = order_id`; beside a broadcast stream, `id`."""
        if self.left_keys is None:
            return ()
        left = [self.left.schema.names[key] for key in self.left_keys]
        if self.right_keys is None:
            return tuple(left)
        right = (self.right.schema.names[key] for key in self.right_keys)
        return tuple(f"{one} = {other}" for one, other in zip(left, right, strict=True))
