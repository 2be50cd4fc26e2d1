"""The steps of the guide's part on joins, top-N and SQL give the rows that were recorded for them."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

from tests.end_to_end.running import SAMPLES, run_file
from tests.guide_rows import check_recorded, file_rows

PAGE = (Path(__file__).parent.parent / "docs" / "guide.md").read_text(encoding="utf-8")
# So patient that no row is late: which late rows a join still finds depends on who comes first.
SOURCES = f"""
sources:
  orders:
    connector: filesystem
    path: {SAMPLES}/orders/
    format: json
    schema: {{order_id: BIGINT, user_id: STRING, product: STRING, amount: "DECIMAL(10, 2)", currency: STRING, ts: TIMESTAMP(3)}}
    watermark: {{column: ts, delay: 1h}}
  clicks:
    connector: filesystem
    path: {SAMPLES}/clicks/
    format: json
    schema: {{user_id: STRING, url: STRING, tags: ARRAY<STRING>, ts: TIMESTAMP(3)}}
    watermark: {{column: ts, delay: 1h}}
  rates:
    connector: filesystem
    path: {SAMPLES}/rates/
    format: json
    schema: {{currency: STRING, usd: "DECIMAL(10, 6)", ts: TIMESTAMP(3)}}
    primary_key: [currency]
    watermark: {{column: ts, delay: 1h}}
"""


def test_the_steps_run(tmp_path: Path) -> None:
    part = PAGE.partition("### Joins, top-N, and SQL in a step")[2]
    found = re.search(r"^```yaml\n(.*?)^```", part, re.DOTALL | re.MULTILINE)
    assert found is not None
    steps = re.findall(r"^  (\w+):$", found[1], re.MULTILINE)
    sinks = "".join(
        f"\n  {name}_out: {{from: {name}, connector: filesystem, path: {tmp_path}/{name}/, format: debezium-json}}"
        for name in steps
    )
    pipeline = tmp_path / "pipeline.yaml"
    pipeline.write_text(f"{SOURCES}{textwrap.dedent(found[1])}sinks:{sinks}\n", encoding="utf-8")
    run_file(pipeline)
    assert len(steps) == 7
    for name in steps:
        check_recorded("guide_joins", name, file_rows(tmp_path / name))
