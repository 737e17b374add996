"""Sites files: the services between which a user chooses.

.. code-block:: yaml

    deadline_s: 10                # for the answers of all sites (default 10)
    sites:
      - name: left
        directory: ~/left         # of a service on this machine
        cpu_factor: 1.5           # run times are 1.5 times as long (default 1)
        units_per_hour: 1         # allocation units of a processor for an hour (default 1)
        cost_per_unit: 0.02       # (default 0)
      - {name: right, access: right.json}     # access file of a service on TCP

Relative paths are relative to the folder of the file. The user chooses by a metric, which stands
for a task assignment policy.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec

from reshape.errors import ReshapeError, nearest
from scheduler.policies.assignment.interface import Assignment
from scheduler.policies.registry import find
from scheduler.text.located import Located

Positive = Annotated[float, msgspec.Meta(gt=0)]
NotNegative = Annotated[float, msgspec.Meta(ge=0)]


class Site(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A site of a sites file: either `directory` or `access` names its service.

    Parameters
    ----------
    name : by which commands name it, as in left:3 for a job.
    directory : directory of a service on this machine, relative to the folder of the file.
    access : access file of a service on TCP, relative to the folder of the file.
    cpu_factor : factor of all run times; 2 is half as fast as 1.
    units_per_hour : allocation units that a processor costs for an hour.
    cost_per_unit : cost of an allocation unit.
    """

    name: Annotated[str, msgspec.Meta(pattern=r"^[^\s:/]+$")]
    directory: str | None = None
    access: str | None = None
    cpu_factor: Positive = 1.0
    units_per_hour: NotNegative = 1.0
    cost_per_unit: NotNegative = 0.0

    @property
    def service(self) -> Path:
        """Directory of the service, or its access file."""
        return Path(self.access or self.directory or "")

    @property
    def price(self) -> float:
        """Cost of a processor for an hour."""
        return self.units_per_hour * self.cost_per_unit


class SitesFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A sites file.

    Parameters
    ----------
    sites : the services between which a user chooses.
    deadline_s : time for the answers of all sites, s.
    """

    sites: Annotated[list[Site], msgspec.Meta(min_length=1)]
    deadline_s: Positive = 10.0

    def named(self, name: str) -> Site | None:
        """Return the site of a name; None if there is none."""
        return next((site for site in self.sites if site.name == name), None)


def read_sites(file: Path) -> SitesFile:
    """Read a sites file; the places of its services are those from the working directory.

    Raises
    ------
    ConfigError : the file is invalid; the message names file, line and field.
    """
    tree = Located.read(file)
    fields = tree.convert(SitesFile)
    sites: list[Site] = []
    for i, site in enumerate(fields.sites):
        field = ("sites", i)
        if any(site.name == other.name for other in sites):
            tree.fail((*field, "name"), f"two sites are named {site.name!r}; rename one")
        if bool(site.directory) == bool(site.access):
            tree.fail(field, "needs one of directory and access")
        path = file.parent / site.service.expanduser()
        if site.access and not path.is_file():
            tree.fail((*field, "access"), f"there is no access file {path}")
        if any(path == other.service for other in sites):
            tree.fail(field, f"the service of {path} is named twice; remove one")
        place = "access" if site.access else "directory"
        sites.append(msgspec.structs.replace(site, **{place: str(path)}))
    return msgspec.structs.replace(fields, sites=sites)


#: Name of a metric -> registered name of its task assignment policy.
METRICS = {
    "wait": "less-waittime",
    "turnaround": "less-turnaround",
    "slowdown": "less-slowdown",
    "cost": "less-cost-sld",
    "work": "less-workleft",
    "queue": "less-jobsinqueue",
}
#: Metrics for which a site must quote a start.
QUOTED = ("wait", "turnaround", "slowdown", "cost")


def metric_of(name: str) -> Assignment:
    """Task assignment policy of a metric, or of ``module:Class``.

    Raises
    ------
    ReshapeError : there is no such metric, or no such class.
    """
    if name not in METRICS and ":" not in name:
        raise ReshapeError(f"--metric: {name!r} is no metric{nearest(name, METRICS)}")
    policy: Assignment = find("assignment", METRICS.get(name, name))()
    return policy
