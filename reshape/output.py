"""The standard output and error of a rank, which mpiexec joins with those of the other ranks.

A pipe is buffered by blocks, so mpiexec would put parts of lines between one another; with
PYTHONUNBUFFERED=1 text and newline of a `print` are separate writes, too.
"""

from __future__ import annotations

import sys
from io import TextIOWrapper


def write_whole_lines() -> None:
    """Write each line of standard output and error at once, when it ends."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # not a stream that the program has put there
            stream.reconfigure(line_buffering=True, write_through=False)
