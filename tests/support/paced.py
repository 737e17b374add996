"""Runs an application with a pause of SECONDS before each iteration, so that it can be resized.

Arguments: SECONDS MODULE ARGUMENT...; the module runs as `python -m MODULE ARGUMENT...` would.
"""

from __future__ import annotations

import runpy
import sys
import time
from collections.abc import Iterator

from reshape.app import Application

seconds, module = float(sys.argv[1]), sys.argv[2]
iterations = Application.iterations


def paced(app: Application, *arguments: int) -> Iterator[int]:
    """Yield the iterations of `Application.iterations` with a pause before each."""
    for iteration in iterations(app, *arguments):
        time.sleep(seconds)
        yield iteration


Application.iterations = paced  # type: ignore[method-assign]
sys.argv = sys.argv[2:]
runpy.run_module(module, run_name="__main__", alter_sys=True)
