"""What a relational node is lowered over."""

from __future__ import annotations

from flowrun.core.record import record
from flowrun.graph.transformation import Transformation


@record
class Inputs:
    """What the inputs of a node became.

    Attributes:
        transformations: one an input, in order.
        changing: whether rows of any of them are updated or deleted.
    """

    transformations: tuple[Transformation, ...]
    changing: bool = False

    @property
    def only(self) -> Transformation:
        """That of a node with one input."""
        (transformation,) = self.transformations
        return transformation
