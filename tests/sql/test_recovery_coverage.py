"""The seeds of the recovery tests have every operator with state in their plans, fed by inserts and by changes."""

from __future__ import annotations

from pathlib import Path

from flowrun.plan.changelog import changelog_modes
from tests.sql.test_recovery import SEEDS, plan_of


def test_every_operator_occurs(tmp_path: Path) -> None:
    pass
