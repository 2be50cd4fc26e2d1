"""From plans to transformations: the step that turns relational nodes into operators."""

from flowrun.lowering.lowering import lower

__all__ = ["lower"]
