"""Waits of allocations in a simulated batch system: a constant, or drawn from a trace."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from reshape.errors import ReshapeError
from reshape.times import seconds_of
from simulator.traces import swf
from simulator.traces.files import is_file


class BatchWaits(msgspec.Struct, frozen=True):
    """Waits from which those of allocations are drawn, each with the same probability.

    Parameters
    ----------
    seconds : (n,) float64, n >= 1.
    """

    seconds: NDArray[np.float64]

    @classmethod
    def constant(cls, seconds: float) -> BatchWaits:
        """The same wait for all allocations."""
        return cls(np.array([float(seconds)]))

    def draw(self, rng: np.random.Generator) -> float:
        """Draw a wait, seconds; a constant draws nothing from the generator."""
        if len(self.seconds) == 1:
            return float(self.seconds[0])
        return float(self.seconds[rng.integers(len(self.seconds))])


def read_waits(text: str) -> BatchWaits:
    """Read a time in the notation of Slurm, or the recorded waits of a trace.

    Parameters
    ----------
    text : such as ``10:00``, or the path of a trace; a file of that name is preferred.

    Raises
    ------
    ReshapeError : it is neither; no job of the trace has a recorded wait.
    """
    path = Path(text)
    if not is_file(path):
        try:
            return BatchWaits.constant(seconds_of(text))
        except ValueError as error:
            raise ReshapeError(f"there is no file {text}, and {error}") from None
    waits = swf.read(path, fields=("wait",)).columns["wait"]
    known = waits[waits >= 0].astype(np.float64)
    if not len(known):
        raise ReshapeError(f"{path}: no job has a recorded wait; name a trace with waits")
    return BatchWaits(known)
