"""A process is saturated if it has used its processor time lately."""

from __future__ import annotations

from flowrun.runtime.network.saturation import Saturation

_MS = 1_000_000


class _Process:
    used_ns = 0

    def __call__(self) -> int:
        return self.used_ns


def test_it_follows_what_the_process_has_used_of_the_last_moments() -> None:
    process = _Process()
    saturation = Saturation(process)
    assert not saturation.is_reached(0), "nothing is known yet"
    process.used_ns += 49 * _MS
    assert not saturation.is_reached(49 * _MS), "too short to say"
    process.used_ns += 1 * _MS
    assert saturation.is_reached(50 * _MS)
    assert saturation.is_reached(99 * _MS)
    process.used_ns += 10 * _MS
    assert not saturation.is_reached(100 * _MS)
    process.used_ns += 150 * _MS
    assert saturation.is_reached(200 * _MS), "on two cores"
    process.used_ns += 100 * _MS
    assert not saturation.is_reached(1_000 * _MS)
