"""Settings from the command line alone, for jobs whose file is a program."""

from __future__ import annotations

from collections.abc import Mapping

from flowrun.errors import PipelineError
from flowrun.frontend.diagnostics import Diagnostics
from flowrun.frontend.settings.declaration import SETTINGS
from flowrun.frontend.settings.reading import read_settings
from flowrun.frontend.source_text import SourceText
from flowrun.frontend.trees.checking import check_document
from flowrun.frontend.trees.nodes import YamlMapping
from flowrun.frontend.trees.overrides import OVERRIDE_FILE, apply_overrides
from flowrun.frontend.trees.spec import RecordValue
from flowrun.plan.nodes import Settings


def overridden_settings(overrides: Mapping[str, str]) -> Settings:
    """The settings that `{"settings.parallelism": "4"}` and the like say, and the defaults of all others.

    Raises:
        PipelineError: a value is wrong, or names no setting; carries every problem.
    """
    source = SourceText(OVERRIDE_FILE, "")
    diagnostics = Diagnostics(source)
    for path in overrides:
        if not path.startswith("settings."):
            diagnostics.error(
                f"a program has no '{path}'", None, hint="its settings can be set: --set settings.parallelism=4"
            )
    diagnostics.raise_if_errors()
    tree = apply_overrides(YamlMapping(source, 0, 0, ()), [f"{k}={v}" for k, v in overrides.items()], diagnostics)
    node = tree.get("settings") if isinstance(tree, YamlMapping) else None
    section = None if node is None else check_document(node, RecordValue(SETTINGS), diagnostics)
    settings = read_settings(section, diagnostics)
    if any(d.severity.value == "error" for d in diagnostics.found):
        raise PipelineError(diagnostics.found)
    return settings
