"""Reads what `/metrics` answers, by the parser of Prometheus's own library."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

Series = dict[tuple[str, frozenset[tuple[str, str]]], float]
"""Name and labels → value."""


def parsed(text: bytes) -> Series:
    """Name and labels → value; fails where a family or a series is there twice."""
    families = list(text_string_to_metric_families(text.decode()))
    names = [(family.name, family.type) for family in families]
    assert len(names) == len(set(names)), "a family is there twice"
    found: Series = {}
    for family in families:
        assert family.documentation, family.name
        for sample in family.samples:
            key = (sample.name, frozenset(sample.labels.items()))
            assert key not in found, f"{sample.name} is there twice with {sample.labels}"
            found[key] = sample.value
    return found


def values(series: Series, name: str, **labels: str) -> list[float]:
    """Of all series of that name which have these labels."""
    return [value for (n, own), value in series.items() if n == name and own >= set(labels.items())]
