"""Which modules are compiled when the project is installed, and when their sources run instead.

The decision core and what drives it in a simulation are plain Python. mypyc translates the modules
named here, as they are, where a C compiler is at hand; without one everything works, more slowly.
In a source tree an edit counts at once: if a source is newer than what was compiled, all sources
run until the project is installed again. RESHAPE_COMPILED=0 has them run in any case.
"""

from __future__ import annotations

import importlib.abc
import importlib.util
import os
import sys
from collections.abc import Sequence
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec
from pathlib import Path
from types import ModuleType

MODULES = (
    "scheduler.core.alarms",
    "scheduler.core.availability",
    "scheduler.core.candidates",
    "scheduler.core.core",
    "scheduler.core.ends",
    "scheduler.core.machine",
    "scheduler.core.queue",
    "scheduler.core.state",
    "scheduler.core.view",
    "scheduler.policies.passes",
    "scheduler.policies.promises",
    "simulator.engine",
)
ROOT = Path(__file__).parent.parent


def source(module: str) -> Path:
    """File of a module."""
    return ROOT.joinpath(*module.split(".")).with_suffix(".py")


def state() -> str:
    """Whether the compiled modules run: "compiled", or in a few words why not."""
    sources = [source(module) for module in MODULES]
    compiled = [path.with_suffix(EXTENSION_SUFFIXES[0]) for path in sources]
    if not all(path.exists() for path in compiled):
        return "not compiled"
    if os.environ.get("RESHAPE_COMPILED") == "0":
        return "RESHAPE_COMPILED=0"
    if (ROOT / "pyproject.toml").exists():
        built = min(path.stat().st_mtime for path in compiled)
        newer = [path.name for path in sources if path.stat().st_mtime > built]
        if newer:
            return f"{newer[0]} is newer than what was compiled"
    return "compiled"


class _Sources(importlib.abc.MetaPathFinder):
    """Finds the sources of the modules, though there are compiled ones."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find one of the modules; all others are for other finders."""
        if name not in MODULES:
            return None
        return importlib.util.spec_from_file_location(name, source(name))


#: What `state` said when the first module was to be imported; so it is for this process.
STATE = state()
if STATE != "compiled":
    sys.meta_path.insert(0, _Sources())
