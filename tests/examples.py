"""How many examples a property test looks at."""

from __future__ import annotations

import os
from typing import Any

from hypothesis import settings

SOAK_FACTOR = 20
"""How many times as many examples the soak run looks at."""


def examples(count: int, **options: Any) -> settings:
    """Settings of one property test: `count` examples in a normal run, twenty times as many in `make soak`.

    A bare `settings(max_examples=…)` would win over the soak profile, so that the long run would find no more than the short one.
    """
    factor = SOAK_FACTOR if os.environ.get("HYPOTHESIS_PROFILE") == "soak" else 1
    return settings(max_examples=count * factor, **options)
