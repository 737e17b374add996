"""Time and memory that this process has used."""

from __future__ import annotations

import os
import resource
import sys
import time
from typing import Any

from scheduler import compiled


class Usage:
    """Clock of a process, from its start by the operating system where that is known (Linux)."""

    def __init__(self) -> None:
        self._begin = time.monotonic() - _age_s()

    def so_far(self, jobs: int) -> dict[str, Any]:
        """Seconds, jobs a second, memory, and whether the core ran compiled, by name."""
        wall_s = time.monotonic() - self._begin
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return {
            "wall_s": round(wall_s, 3),
            "cpu_s": round(time.process_time(), 3),
            "jobs_per_s": round(jobs / wall_s, 1),
            "peak_rss_mib": round(peak / (1 << 20 if sys.platform == "darwin" else 1024), 1),
            "core": compiled.STATE,
        }


def _age_s() -> float:
    """Age of this process in seconds; 0 where the system does not provide it."""
    try:
        with open("/proc/self/stat") as file:
            started = int(file.read().rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
        return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - started)
    except (OSError, AttributeError, ValueError, IndexError):
        return 0.0
