"""Runs an application that is resized for as long as the test wants, with a result as usual.

Arguments: SECONDS MODULE ARGUMENT...; the module runs as `python -m MODULE ARGUMENT...` would, with
a pause before each iteration of SECONDS divided by the number of processes, so that expansions pay
however loaded the machine is. Before its last iteration it waits until the test tells it to end
(`told`), and passes resize points meanwhile.
"""

from __future__ import annotations

import runpy
import sys
import time
from collections.abc import Iterator

from told import ENDLESS, may_end

from reshape.app import Application

seconds, module = float(sys.argv[1]), sys.argv[2]
iterations = Application.iterations


def paced(app: Application, total: int) -> Iterator[int]:
    """Yield the iterations of the program after a pause each, the last one when it may end."""
    for _ in iterations(app, ENDLESS):
        time.sleep(seconds / app.comm.size)
        iteration = app.state.get("iteration", 0)
        if iteration < total - 1 or may_end(app.comm):
            yield iteration
            app.state["iteration"] = iteration + 1
            if iteration == total - 1:
                return


Application.iterations = paced  # type: ignore[method-assign]
sys.argv = sys.argv[2:]
runpy.run_module(module, run_name="__main__", alter_sys=True)
