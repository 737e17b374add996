"""New cuts of ragged data, and the packing of items; `move` moves the parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from reshape.data.arrays import AllCuts, RaggedCuts
from reshape.data.job_context import JobContext
from reshape.data.ragged import Counts, cuts_at, cuts_of_sizes
from reshape.errors import ReshapeError


def next_cuts(
    job: JobContext, comm: MPI.Intracomm, sources: Sequence[int], size: int
) -> tuple[AllCuts, AllCuts]:
    """Collective over comm. Cuts of all ragged data: the current ones, and those on `size` ranks.

    Extra memory: 16 bytes for each row of the whole array, on the first source.

    Parameters
    ----------
    sources : ranks of `comm` that hold the data.
    """
    now, then = dict[str, RaggedCuts](), dict[str, RaggedCuts]()
    if not job.ragged:
        return now, then
    root, is_source = sources[0], comm.rank in sources
    own = {name: r.counts.local for name, r in job.ragged.items()} if is_source else {}
    gathered = comm.gather(own, root)
    if gathered is not None:
        for name, ragged in job.ragged.items():
            counts = np.concatenate([gathered[rank][name] for rank in sources])
            now[name] = ragged.cuts
            then[name] = cuts_at(ragged.next_rows(counts, size).offsets, counts)
    now, then = comm.bcast((now, then), root)
    return now, then


def pack_all(job: JobContext) -> str:
    """Collective over job.comm. Pack all data that is not plain memory, such as items.

    Returns
    -------
    the reason why this process failed; empty if it succeeded.
    """
    packed: dict[str, tuple[Counts, list[NDArray[Any]]]] = {}
    why = ""
    for name, ragged in job.ragged.items():
        try:
            if (found := ragged.pack()) is not None:
                packed[name] = found
        except Exception as error:  # pickling runs code of the user's classes
            why = f"items {name!r} cannot be pickled: {error}"
    sizes = {name: (len(counts), len(values[0])) for name, (counts, values) in packed.items()}
    gathered = job.comm.allgather(None if why else sizes)
    if why or None in gathered:
        return why
    try:
        for name, (counts, values) in packed.items():
            rows, entries = zip(*(each[name] for each in gathered), strict=True)
            cuts = cuts_of_sizes(rows, entries)
            job.ragged[name].place(job.memory, cuts, counts, values)
    except (MemoryError, ReshapeError) as error:
        why = f"no memory to pickle items on rank {job.comm.rank}: {error}"
    return why
