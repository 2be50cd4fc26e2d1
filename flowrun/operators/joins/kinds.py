"""Which rows a join gives."""

from __future__ import annotations

from enum import Enum


class JoinKind(Enum):
    """Which rows a join gives. SEMI and ANTI give rows of the left side that have, or do not have, a match."""

    INNER = "inner"
    LEFT = "left"
    RIGHT = "right"
    FULL = "full"
    SEMI = "semi"
    ANTI = "anti"

    @property
    def keeps(self) -> tuple[bool, bool]:
        """For the left and the right side, whether a row without match comes out, padded with NULLs."""
        return self in (JoinKind.LEFT, JoinKind.FULL), self in (JoinKind.RIGHT, JoinKind.FULL)

    @property
    def counts(self) -> tuple[bool, bool]:
        """For the left and the right side, whether it matters how many matches a row has."""
        left, right = self.keeps
        return left or self.left_only, right

    @property
    def left_only(self) -> bool:
        """Whether only columns of the left side come out."""
        return self in (JoinKind.SEMI, JoinKind.ANTI)
