"""Which modules are compiled at installation, and when their sources run instead.

The decision core and its driver in a simulation are plain Python. If there is a C compiler, mypyc
compiles the modules named here; without one everything works, more slowly. Edits take effect at
once: if a source differs from what was compiled, all sources run until the project is installed
again. With RESHAPE_COMPILED=0 the sources always run.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import ModuleType
from zlib import crc32

MODULES = (
    "scheduler.core.core",
    "scheduler.forecasts.expected_jobs",
    "scheduler.model.groups",
    "scheduler.model.history",
    "scheduler.model.intervals",
    "scheduler.model.job",
    "scheduler.model.machine",
    "scheduler.model.sharing",
    "scheduler.model.space",
    "scheduler.partition.alarms",
    "scheduler.partition.eligibility",
    "scheduler.partition.job_events",
    "scheduler.partition.machine_events",
    "scheduler.partition.partition",
    "scheduler.partition.passes",
    "scheduler.partition.queueing",
    "scheduler.partition.resizing",
    "scheduler.policies.backfill.kept_reservations",
    "scheduler.policies.backfill.own_pass",
    "scheduler.policies.backfill.profile_pass",
    "scheduler.policies.backfill.scheduling_pass",
    "scheduler.policies.backfill.table_pass",
    "scheduler.policies.queue_orders.compiled_keys",
    "scheduler.policies.resizing.allocation",
    "scheduler.policies.resizing.recordable",
    "scheduler.policies.resizing.targets",
    "scheduler.policies.selection.table_search",
    "scheduler.state.bitsets",
    "scheduler.state.candidates",
    "scheduler.state.derived_jobs",
    "scheduler.state.earliest_place",
    "scheduler.state.profile",
    "scheduler.state.queue",
    "scheduler.state.reservation_table",
    "scheduler.state.scheduler_state",
    "scheduler.state.view",
    "scheduler.clock.agenda",
    "scheduler.clock.loop",
    "simulator.engine.job_programs",
    "simulator.engine.rigid_jobs",
    "simulator.many_centres.expected_start",
)
ROOT = Path(__file__).parent.parent
#: Raised when hatch_build.py compiles in another way.
BUILD = 1


#: File with the `digest` of the compiled sources.
DIGEST = ROOT / "scheduler/compiled.digest"


def source(module: str) -> Path:
    """Source file of a module."""
    return ROOT.joinpath(*module.split(".")).with_suffix(".py")


def digest() -> str:
    """Checksum of the present sources, with the kind of extension modules."""
    crc = BUILD
    for module in MODULES:
        crc = crc32(source(module).read_bytes(), crc)
    return f"{crc:08x} {EXTENSION_SUFFIXES[0]}"


def is_current() -> bool:
    """Whether the present sources are the compiled ones."""
    return DIGEST.exists() and DIGEST.read_text() == digest()


def state() -> str:
    """Whether the compiled modules run: "compiled", or the reason why not."""
    if os.environ.get("RESHAPE_COMPILED") == "0":
        return "not used, RESHAPE_COMPILED=0"
    if not DIGEST.exists():
        return "not compiled"
    return "compiled" if is_current() else "not used, the sources have changed since"


class _Sources(PathFinder):
    """Finds the sources of the modules although there are compiled ones."""

    @classmethod
    def find_spec(
        cls, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find one of the modules, and no others."""
        if name not in MODULES:
            return None
        file = str(source(name))
        spec = ModuleSpec(name, SourceFileLoader(name, file), origin=file)
        spec.has_location = True
        return spec


#: The result of `state` before the first import of a module; it holds for this process.
STATE = state()
if STATE != "compiled":
    sys.meta_path.insert(0, _Sources)
