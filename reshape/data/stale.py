"""Errors of programs that write local parts of before a resize, which are read-only.

NumPy's message does not say which array that is. The arrays remember their earlier local parts as
long as something refers to them, and the variables of the functions that the error has passed are
compared with these.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reshape.data.arrays import Array

_READ_ONLY = "read-only"


def explain_stale(error: BaseException, arrays: Iterable[Array]) -> None:
    """Add to an error of a write to an earlier local part a note that says what to use.

    Parameters
    ----------
    arrays : the registered arrays of the program.
    """
    if not isinstance(error, ValueError) or _READ_ONLY not in str(error):
        return
    earlier = [(array.name, part) for array in arrays for part in array.earlier_parts()]
    if not earlier:
        return
    variables = _variables(error.__traceback__)
    found = {
        f"variable {variable!r} is array {name!r}"
        for variable, value in variables.items()
        for name, part in earlier
        if value is part
    }
    what = ", ".join(sorted(found)) or "it may be a registered array"
    error.add_note(
        f"{what} of before a resize, which is read-only: read `local` again in each iteration"
    )


def _variables(trace: TracebackType | None) -> dict[str, NDArray[Any]]:
    """Arrays in the variables of the functions that an error has passed."""
    variables = dict[str, NDArray[Any]]()
    while trace is not None:
        frame = trace.tb_frame
        for name, value in (*frame.f_globals.items(), *frame.f_locals.items()):
            if isinstance(value, np.ndarray):
                variables[name] = value
        trace = trace.tb_next
    return variables
