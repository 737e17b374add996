"""Batch site files: a batch system that stands as a site in a sites file.

.. code-block:: yaml

    system: psij-pbs              # slurm, or psij- and slurm, pbs, pbs_classic, lsf, flux or local
    jobs: ~/pbs-jobs              # folder of the batch jobs, which the nodes share
    nodes: 16                     # largest number of nodes of a job
    processors_per_node: 48
    options: [queue=short]        # of the batch system, for each batch job
    keep_days: 60                 # days for which ended jobs are kept, >= 31; null: forever

A relative folder is relative to the folder of the file.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec

from scheduler.text.located import Located

SUFFIXES = (".yaml", ".yml")
Count = Annotated[int, msgspec.Meta(ge=1, lt=2**31)]
#: Longer than clients repeat a submission (`scheduler.client.sites.records.RETRIED_S`), so that no
#: repetition comes after the key was removed.
KeptDays = Annotated[float, msgspec.Meta(ge=31)]


class BatchSiteFields(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Fields of a batch site file; the module docstring describes them."""

    system: str
    jobs: str
    processors_per_node: Count
    nodes: Count = 1
    options: list[str] = []
    keep_days: KeptDays | None = 60.0


class BatchSiteDescription(msgspec.Struct, frozen=True):
    """A site that stands for a batch system.

    Parameters
    ----------
    system : name of the batch system.
    folder : of the batch jobs.
    nodes, processors_per_node : largest number of nodes of a job, and processors of each.
    options : of the batch system, for each batch job.
    keep_s : seconds for which ended jobs are kept; None: forever.
    """

    system: str
    folder: Path
    nodes: int
    processors_per_node: int
    options: tuple[str, ...] = ()
    keep_s: float | None = None

    @property
    def processors(self) -> int:
        """Largest number of processors of a job."""
        return self.nodes * self.processors_per_node


def is_batch_site_file(place: Path | str) -> bool:
    """Whether a place is a batch site file, instead of a directory or access file of a service."""
    path = Path(place)
    return path.suffix in SUFFIXES and path.is_file()


def read_batch_site(file: Path) -> BatchSiteDescription:
    """Read a batch site file.

    Raises
    ------
    ConfigError : the file is invalid; the message names file, line and field.
    """
    fields = Located.read(file).convert(BatchSiteFields)
    folder = (file.parent / Path(fields.jobs).expanduser()).absolute()
    return BatchSiteDescription(
        fields.system,
        folder,
        fields.nodes,
        fields.processors_per_node,
        tuple(fields.options),
        None if fields.keep_days is None else fields.keep_days * 86400.0,
    )
