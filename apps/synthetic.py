"""A job that takes as long as a speedup model says, without computing: it sleeps.

It stands in for applications larger than the machine at hand: its iterations get shorter with more
processors as a model of :mod:`reshape.speedup` says (PRIO 4.1's, by default), while the data it
carries is real, is really moved at each resize, and is checked element by element at the end.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

import reshape
from reshape.app import Application
from reshape.data.arrays import Array
from reshape.speedup import Model, Prio, parse

COLUMNS = 1024  # of int64: 128 rows are a MiB
BLOCK = (16, 64)


def indices(array: Array, rank: int) -> NDArray[np.int64]:
    """Global linear index of each local element of `rank`."""
    rows, columns = array.layout.global_indices(rank)
    return rows[:, np.newaxis] * COLUMNS + columns


def carry(app: Application, options: argparse.Namespace) -> bool:
    """Collective over app.comm. Wait through all iterations; True if the data is unharmed."""
    data = app.block_cyclic("data", (128 * options.mib, COLUMNS), BLOCK, dtype=np.int64)
    if app.is_fresh_start:
        data.local[:] = indices(data, app.comm.rank)
        app.state["start"] = options.start_size or app.comm.size
    for _ in app.iterations(options.iterations):
        faster = options.speedup.factor(app.state["start"], app.comm.size)
        time.sleep(options.seconds / faster)
    unharmed = np.array_equal(data.local, indices(data, app.comm.rank))
    return bool(app.comm.allreduce(int(unharmed)) == app.comm.size)


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line; `speedup` is the model, `iterations`, `seconds` and `mib` the work.

    Raises
    ------
    SystemExit : wrong usage, told on stderr.
    """
    parser = argparse.ArgumentParser(prog="python -m apps.synthetic", description=__doc__)
    parser.add_argument("--iterations", type=int, default=7, help="iterations (7)")
    parser.add_argument(
        "--seconds", type=float, default=1.0, help="length of an iteration on the start size (1)"
    )
    parser.add_argument(
        "--start-size", type=int, help="processors that take --seconds; those it starts on"
    )
    parser.add_argument("--alpha", type=float, default=0.8, help="parameter of PRIO's model (0.8)")
    parser.add_argument(
        "--model",
        choices=("sweet-spot", "printed"),
        default="sweet-spot",
        help="reading of the formula of PRIO 4.1 (sweet-spot)",
    )
    parser.add_argument(
        "--speedup", type=_model, help="any speedup model instead, as amdahl:serial=0.1"
    )
    parser.add_argument("--mib", type=int, default=8, help="MiB of data it carries (8)")
    parser.add_argument("--topology", help="sizes it can run on; the submission's by default")
    options = parser.parse_args(words)
    if options.iterations < 0 or options.seconds < 0 or options.mib < 0:
        parser.error("--iterations, --seconds and --mib must be >= 0")
    if options.start_size is not None and options.start_size < 1:
        parser.error("--start-size must be >= 1")
    if options.speedup is None:
        try:
            options.speedup = Prio(options.alpha, options.model)
        except ValueError as error:
            parser.error(f"--{error}")
    return options


def _model(text: str) -> Model:
    try:
        return parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def main() -> int:
    """Run the program; 0 if all data is verified."""
    options = arguments()
    with reshape.application(topology=options.topology) as app:
        verified = carry(app, options)
        app.report(verified=verified, mib=options.mib)
        if app.comm.rank == 0:
            print(
                f"synthetic: iterations={options.iterations} processors={app.comm.size} "
                f"{options.mib} MiB {'verified' if verified else 'WRONG'}",
                flush=True,
            )
    return 0 if verified else 1


if __name__ == "__main__":
    sys.exit(main())
