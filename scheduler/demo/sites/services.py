"""The sites of the demonstration: services of different size, speed and price on this machine."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

import msgspec

from scheduler.config.sites_file import SitesFile, read_sites
from scheduler.demo.run import embedded_service

#: An allocation unit is a processor-second, because the jobs last a few seconds.
UNITS_PER_HOUR = 3600
#: Seconds that a site has for its answers; a busy machine needs long for them.
DEADLINE_S = 30.0


class DemoSite(msgspec.Struct, frozen=True):
    """A site of the demonstration.

    Parameters
    ----------
    processors : number of virtual processors.
    cpu_factor : factor of all run times.
    cost_per_unit : cost of a processor for a second.
    """

    name: str
    processors: int
    cpu_factor: float
    cost_per_unit: float


class _Kind(NamedTuple):
    share: Fraction  # of the processors of the largest site
    cpu_factor: float
    cost_per_unit: float


#: The faster a site, the smaller and the more expensive it is.
_KINDS = (
    _Kind(Fraction(1), 1.5, 1.0),
    _Kind(Fraction(1, 2), 1.0, 2.0),
    _Kind(Fraction(1, 4), 0.75, 4.0),
    _Kind(Fraction(1), 2.0, 0.5),
    _Kind(Fraction(1, 2), 1.25, 1.5),
    _Kind(Fraction(1, 4), 0.8, 3.0),
)
MOST_SITES = len(_KINDS)


def demo_sites(count: int, processors: int) -> list[DemoSite]:
    """Describe the first `count` sites, named A, B and so on.

    Parameters
    ----------
    count : number of sites, 1 to `MOST_SITES`.
    processors : number of processors of the largest site.
    """
    return [
        DemoSite(
            "ABCDEF"[i], max(1, int(processors * kind.share)), kind.cpu_factor, kind.cost_per_unit
        )
        for i, kind in enumerate(_KINDS[:count])
    ]


@contextlib.contextmanager
def running_sites(sites: list[DemoSite], scenario: str, folder: Path) -> Iterator[SitesFile]:
    """Run a service for each site, and end all of them with their jobs in any case.

    Parameters
    ----------
    folder : folder for sites.yaml and for the journals, NAME.db, that are copied to it at the end.

    Yields
    ------
    the contents of sites.yaml.

    Raises
    ------
    ReshapeError : a service cannot be started.
    """
    with contextlib.ExitStack() as services:
        directories = {
            site.name: services.enter_context(
                embedded_service(site.processors, scenario, folder / f"{site.name}.db")
            )
            for site in sites
        }
        file = folder / "sites.yaml"
        _write_sites(file, sites, directories)
        yield read_sites(file)


def _write_sites(file: Path, sites: list[DemoSite], directories: dict[str, Path]) -> None:
    fields = {
        "deadline_s": DEADLINE_S,
        "sites": [
            {
                "name": site.name,
                "directory": str(directories[site.name]),
                "cpu_factor": site.cpu_factor,
                "units_per_hour": UNITS_PER_HOUR,
                "cost_per_unit": site.cost_per_unit,
                "max_processors": site.processors,
            }
            for site in sites
        ],
    }
    file.write_bytes(msgspec.yaml.encode(fields))
