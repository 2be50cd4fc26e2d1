"""`python -m benchmarks [NAME …] [--write]`: measure, print the table, and with --write put it into docs/benchmarks.md."""

from __future__ import annotations

import argparse
import datetime
import sys
from pathlib import Path

from benchmarks import (
    back_pressure,
    cdc,
    checkpoints,
    cluster,
    files,
    formats,
    functions,
    jdbc,
    join_order,
    joins,
    json_lines,
    kafka,
    latency,
    nexmark,
    nexmark_flink,
    nexmark_parallel,
    pages,
    process,
    spark,
    start_up,
    window_functions,
    windows,
    workers,
)
from benchmarks.measuring import Figure, machine, table

BENCHMARKS = {
    "windows": windows.run,
    "process": process.run,
    "functions": functions.run,
    "window_functions": window_functions.run,
    "checkpoints": checkpoints.run,
    "files": files.run,
    "jdbc": jdbc.run,
    "cdc": cdc.run,
    "formats": formats.run,
    "json_lines": json_lines.run,
    "joins": joins.run,
    "join_order": join_order.run,
    "kafka": kafka.run,
    "start_up": start_up.run,
    "latency": latency.run,
    "pages": pages.run,
    "back_pressure": back_pressure.run,
    "workers": workers.run,
    "cluster": cluster.run,
    "nexmark": nexmark.run,
    "nexmark_flink": nexmark_flink.run,
    "nexmark_parallel": nexmark_parallel.run,
    "spark": spark.run,
    "spark_nexmark": spark.run_nexmark,
}
PAGE = Path(__file__).parent.parent / "docs" / "benchmarks.md"
END = "<!-- end of figures -->"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*BENCHMARKS, []], help="which ones; all if none is named")
    parser.add_argument("--write", action="store_true", help="put their tables into docs/benchmarks.md")
    arguments = parser.parse_args()
    all_cleared = True
    for name in arguments.names or BENCHMARKS:
        print(f"measuring {name} …", file=sys.stderr, flush=True)
        figures: list[Figure] = BENCHMARKS[name]()
        all_cleared &= all(f.cleared is not False for f in figures)
        text = f"{datetime.date.today().isoformat()}, {machine()}\n\n{table(figures)}"
        print(text, flush=True)
        if arguments.write:
            _write(name, text)
    return 0 if all_cleared else 1


def _write(name: str, text: str) -> None:
    """Put a benchmark's table between its marker and the next end."""
    page = PAGE.read_text()
    start = page.index(f"<!-- figures: {name} -->") + len(f"<!-- figures: {name} -->")
    stop = page.index(END, start)
    PAGE.write_text(page[:start] + "\n" + text + "\n" + page[stop:])


if __name__ == "__main__":
    sys.exit(main())
