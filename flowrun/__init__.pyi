"""What users import from the package itself, for type checkers: at run time each name is imported when it is first asked for."""

from flowrun.api.user_functions import ptf, udaf, udf, udtf
from flowrun.runners.notebook.running import pipeline, sql
from flowrun.runners.notebook.tables import table

__version__: str
__all__ = ["__version__", "pipeline", "ptf", "sql", "table", "udaf", "udf", "udtf"]
