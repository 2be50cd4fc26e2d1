"""Builds what is written in C when flowrun is installed on a machine that has a C compiler; on others it is left out."""

from __future__ import annotations

import runpy
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

NATIVE = Path("flowrun/connectors/formats/native")


class CustomBuildHook(BuildHookInterface):  # type: ignore[type-arg, misc, unused-ignore]
    """Hatchling finds it by its name."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build the library into the source tree, from which an editable install loads it, and put it into a wheel."""
        native = runpy.run_path(str(Path(self.root) / NATIVE / "build.py"))
        library: Path = native["LIBRARY"]
        try:
            native["build"]()
        except native["NotBuiltError"] as error:
            library.unlink(missing_ok=True)  # of another time
            self.app.display_warning(f"flowrun reads JSON without its compiled reader, five times as slowly: {error}")
            return
        build_data["pure_python"] = False
        build_data["tag"] = "py3-none-" + sysconfig.get_platform().replace("-", "_").replace(".", "_")
        if version != "editable":
            build_data["force_include"][str(library)] = str(NATIVE / library.name)
