"""Aligned windows (tumbling, sliding, cumulative): rows are folded into slices of time, which windows that overlap share."""
