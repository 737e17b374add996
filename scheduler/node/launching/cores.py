"""The CPUs of a host, by core, and those that each processor of a service stands for.

A CPU is what the operating system schedules on; a core with several hardware threads has several.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from itertools import chain, zip_longest
from pathlib import Path

_TOPOLOGY = "/sys/devices/system/cpu/cpu{cpu}/topology"


def cores() -> list[list[int]]:
    """CPUs that this process may use, by core; the cores of one socket are adjacent.

    Where the system does not tell which CPUs belong to one core, each CPU counts as a core.
    """
    by_core: dict[tuple[int, str], list[int]] = {}
    for cpu in sorted(os.sched_getaffinity(0)):
        folder = Path(_TOPOLOGY.format(cpu=cpu))
        siblings = _read(folder / "thread_siblings_list") or str(cpu)
        socket = int(_read(folder / "physical_package_id") or 0)
        by_core.setdefault((socket, siblings), []).append(cpu)
    return [cpus for _, cpus in sorted((socket, cpus) for (socket, _), cpus in by_core.items())]


def cpus_of_processors(cores: Sequence[Sequence[int]], processors: int) -> list[list[int]]:
    """CPUs that each processor of a host stands for; empty if the host has too few.

    A processor is a core with all its CPUs if there are enough cores, else one CPU; the first CPUs
    of all cores come before the second ones.

    Parameters
    ----------
    processors : number of processors that the service has on the host.
    """
    if processors <= len(cores):
        return [list(core) for core in cores[:processors]]
    by_thread = chain.from_iterable(zip_longest(*cores))
    cpus = [[cpu] for cpu in by_thread if cpu is not None]
    return cpus[:processors] if processors <= len(cpus) else []


def binding_text(cpus: Mapping[int, Sequence[int]]) -> str:
    """Write the CPUs of ranks as the variable RESHAPE_CPUS has them."""
    return " ".join(f"{rank}:{','.join(map(str, own))}" for rank, own in cpus.items())


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
