"""Paths in processes with other working directories."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from flowrun.connectors.filesystem.locations import Location


@pytest.mark.parametrize(
    ("text", "elsewhere"),
    [
        ("in/orders", "{here}/in/orders"),
        ("in/", "{here}/in/"),
        ("in/*.json", "{here}/in/*.json"),
        ("/data", "/data"),
        ("file:///data", "file:///data"),
        ("s3://bucket/key", "s3://bucket/key"),
    ],
)
def test_a_relative_path_means_the_same_in_another_process(
    text: str, elsewhere: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert pickle.loads(pickle.dumps(Location(text))).text == elsewhere.format(here=tmp_path)
