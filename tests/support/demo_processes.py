"""Processes that a demonstration has started."""

from __future__ import annotations

from pathlib import Path

import psutil


def of_the_demo(temporary: Path) -> list[psutil.Process]:
    """Processes of services, agents and programs that were started below a temporary directory."""
    found = []
    for process in psutil.process_iter():
        try:
            words = " ".join(process.cmdline()) + process.environ().get("RESHAPE_SERVER", "")
            if str(temporary) in words and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (psutil.Error, OSError):
            continue
    return found
