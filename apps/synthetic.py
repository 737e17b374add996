"""A job whose iterations sleep for the time that a speedup model gives, instead of computing.

It replaces applications that need a larger machine. Iterations get shorter with more processors
according to a model of :mod:`reshape.speedup` (by default that of PRIO 4.1). The registered data is
real: it moves at each resize, and all elements are checked at the end.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

import reshape
from apps.common import add_topology, conclude
from reshape.app import Application
from reshape.data.arrays import Array
from reshape.speedup import Model, Prio, parse

COLUMNS = 1024  # of int64, so that 128 rows are a MiB
BLOCK = (16, 64)


def indices(array: Array, rank: int) -> NDArray[np.int64]:
    """Global linear index of each local element of `rank`."""
    rows, columns = array.layout.global_indices(rank)
    return rows[:, np.newaxis] * COLUMNS + columns


def run(app: Application, options: argparse.Namespace) -> bool:
    """Collective over app.comm. Run all iterations; True if the data is unchanged at the end."""
    data = app.block_cyclic("data", (128 * options.mib, COLUMNS), BLOCK, dtype=np.int64)
    if app.is_fresh_start:
        data.local[:] = indices(data, app.comm.rank)
        app.state["start"] = options.start_size or app.comm.size
        app.comm.Barrier()  # to fill the data may take some ranks longer
    for _ in app.iterations(options.iterations):
        faster = options.speedup.factor(app.state["start"], app.comm.size)
        time.sleep(options.seconds / faster)
    unchanged = np.array_equal(data.local, indices(data, app.comm.rank))
    return bool(app.comm.allreduce(int(unchanged)) == app.comm.size)


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line; `speedup` of the result is the model.

    Raises
    ------
    SystemExit : wrong usage, with a message on stderr.
    """
    parser = argparse.ArgumentParser(prog="python -m apps.synthetic", description=__doc__)
    parser.add_argument("--iterations", type=int, default=7, help="iterations (7)")
    parser.add_argument(
        "--seconds", type=float, default=1.0, help="length of an iteration on the start size (1)"
    )
    parser.add_argument(
        "--start-size",
        type=int,
        help="number of processors on which an iteration takes --seconds (those at the start)",
    )
    parser.add_argument(
        "--speedup",
        type=_model,
        default=Prio(),
        help="speedup model, for example amdahl:serial=0.1 (prio:alpha=0.8)",
    )
    parser.add_argument("--mib", type=int, default=8, help="MiB of registered data (8)")
    add_topology(parser)
    options = parser.parse_args(words)
    if options.iterations < 0 or options.seconds < 0 or options.mib < 0:
        parser.error("--iterations, --seconds and --mib must be >= 0")
    if options.start_size is not None and options.start_size < 1:
        parser.error("--start-size must be >= 1")
    return options


def _model(text: str) -> Model:
    try:
        return parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def main() -> int:
    """Run the program; the exit code is 0 if all data is verified."""
    options = arguments()
    with reshape.application(topology=options.topology) as app:
        verified = run(app, options)
        text = f"synthetic: iterations={options.iterations} processors={app.comm.size}"
        conclude(app, f"{text} {options.mib} MiB", verified, mib=options.mib)
    return 0 if verified else 1


if __name__ == "__main__":
    sys.exit(main())
