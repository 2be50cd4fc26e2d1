"""What `docs/deployment` has: its manifests, its compose file and its pipeline, as tests read and run them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "deployment"


def manifests() -> list[dict[str, Any]]:
    return [d for file in sorted((FOLDER / "kubernetes").glob("*.yaml")) for d in yaml.safe_load_all(file.read_text())]


def workloads() -> list[dict[str, Any]]:
    return [m for m in manifests() if m["kind"] in ("Deployment", "StatefulSet")]


def pod_of(workload: dict[str, Any]) -> dict[str, Any]:
    return workload["spec"]["template"]["spec"]  # type: ignore[no-any-return]


def pipeline_pod() -> dict[str, Any]:
    """The pod of `pipeline.yaml`."""
    (pod,) = [pod_of(m) for m in workloads() if m["kind"] == "Deployment"]
    return pod


def compose() -> dict[str, Any]:
    return yaml.safe_load((FOLDER / "compose.yaml").read_text())  # type: ignore[no-any-return]


def fast_pipeline() -> str:
    """The pipeline of the compose file with fifty times the rows, and checkpoints that come as much sooner."""
    sql = (FOLDER / "pipelines" / "orders.sql").read_text()
    return sql.replace("'rows-per-second' = '100'", "'rows-per-second' = '5000'").replace("'10s'", "'200ms'")
