"""The order of inner joins by the sizes of their tables, for runs that end."""

from flowrun.plan.join_order.reordering import order_by_sizes
from flowrun.plan.join_order.table_rows import table_rows

__all__ = ["order_by_sizes", "table_rows"]
