"""What the statement around a query tells its binding: the name for its steps, where problems go, and how its tables are read."""

from __future__ import annotations

from typing import Protocol

from flowrun.core.record import record
from flowrun.frontend.diagnostics import Diagnostics
from flowrun.frontend.source_text import SourceText
from flowrun.frontend.sql.catalog import CatalogTable
from flowrun.frontend.sql.spans import Span
from flowrun.plan.nodes import NodeHints, Scan


class ScanTable(Protocol):
    """Gives the scans of tables."""

    def __call__(self, table: CatalogTable, span: Span) -> Scan:
        """The scan of a table, which all queries share; one of its own for a table with other options than it was declared with.

        Options of the table that cannot be read are reported at their own place, not raised.

        Args:
            table: as declared.
            span: where a query names it: first and one-past-last code point in the script.

        Raises:
            ExpressionError: its other options are wrong; with a place in the script.
        """
        ...


class HintNodes(Protocol):
    """Gives name, stable id, place and further hints of the nodes of a query."""

    def __call__(self, kind: str, number: int) -> NodeHints:
        """Hints of the `number`-th node (from 1) of a kind, e.g. `join`; its location is set by who asks."""
        ...


@record
class QueryContext:
    """The statement that a query belongs to.

    Attributes:
        name: of the view, of the table that is written, or `select`: steps of the query are named after it.
        source: the whole script; offsets of errors count its code points, and `source.locate` gives their places in the file.
        diagnostics: for warnings; errors are raised.
        scan: gives the scan of a table.
        hints: gives the hints of nodes; None: they are named after `name`.
        row_by_row: the select list takes the rows one by one, as that of a step does: aggregates in it are wrong.
        variances_in_double: the variance of whole numbers and decimals is one aggregate in DOUBLE, no expression over sums as in Flink.
    """

    name: str
    source: SourceText
    diagnostics: Diagnostics
    scan: ScanTable
    hints: HintNodes | None = None
    row_by_row: bool = False
    variances_in_double: bool = False
