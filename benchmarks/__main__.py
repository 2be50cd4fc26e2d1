"""`python -m benchmarks [NAME …] [--write]`: measure, print the table, and with --write put it into docs/benchmarks.md."""

from __future__ import annotations

import argparse
import datetime
import sys
from pathlib import Path

from benchmarks import back_pressure, checkpoints, files, joins, latency, nexmark, process, spark, start_up, windows
from benchmarks.measuring import Figure, machine, table

BENCHMARKS = {
    "windows": windows.run,
    "process": process.run,
    "checkpoints": checkpoints.run,
    "files": files.run,
    "joins": joins.run,
    "start_up": start_up.run,
    "latency": latency.run,
    "back_pressure": back_pressure.run,
    "nexmark": nexmark.run,
    "spark": spark.run,
}
PAGE = Path(__file__).parent.parent / "docs" / "benchmarks.md"
BEGIN, END = "<!-- figures -->", "<!-- end of figures -->"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*BENCHMARKS, []], help="which ones; all if none is named")
    parser.add_argument("--write", action="store_true", help="put the table into docs/benchmarks.md")
    arguments = parser.parse_args()
    figures: list[Figure] = []
    for name in arguments.names or BENCHMARKS:
        print(f"measuring {name} …", file=sys.stderr, flush=True)
        figures += BENCHMARKS[name]()
    text = f"{datetime.date.today().isoformat()}, {machine()}\n\n{table(figures)}"
    print(text)
    if arguments.write:
        page = PAGE.read_text()
        start, stop = page.index(BEGIN) + len(BEGIN), page.index(END)
        PAGE.write_text(page[:start] + "\n" + text + "\n" + page[stop:])
    return 0 if all(f.cleared is not False for f in figures) else 1


if __name__ == "__main__":
    sys.exit(main())
