"""The command line, called in this process; and no client leaves a thread behind."""

from __future__ import annotations

from tests.end_to_end.conftest import flowrun, no_thread_is_left_behind, own_registry

__all__ = ["flowrun", "no_thread_is_left_behind", "own_registry"]
