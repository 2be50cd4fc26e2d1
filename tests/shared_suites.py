"""The scripts and rows that live beside the repository."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

import pytest


def needs_shared(found: Collection[Path]) -> pytest.MarkDecorator:
    """The mark of tests that need them: without them they are skipped, as in a clone of a user; in CI that is a failure.

    Raises:
        AssertionError: this is CI (the environment variable `CI` is set), and nothing was found.
    """
    in_ci = os.environ.get("CI", "").lower() not in ("", "0", "false")
    assert found or not in_ci, "the shared suites are not beside the repository, and CI must not pass without them"
    return pytest.mark.skipif(not found, reason="the shared suites are not beside the repository")
