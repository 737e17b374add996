"""Time of a checkpoint against a plain parallel write of the same bytes, and of a restart.

    python benchmarks/runtime/checkpoint.py [--mib 1024] [--ranks 2] [--repeats 7] [--dir DIR]
                                            [--json]

One program writes, by turns, a checkpoint (`app.checkpoint`) and a plain copy: each rank writes its
local part into a new file and calls fsync. A time is that of the slowest rank, from one barrier to
the next. The removal of the files is measured by itself: that of a checkpoint happens while the
program computes. Then the program restarts on as many ranks and on
one more. The files are removed at the end.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from reshape.mpi import clean_environment, mpiexec_path

CHUNK_BYTES = 512 << 10  # larger ones were slower here
COLUMNS = 1024
#: Seconds before each write. A virtual machine gives freed memory back to its host meanwhile, so
#: that no write profits from pages that were freed a moment ago.
SETTLE_S = 3.0


def plain_write(path: Path, data: memoryview) -> None:
    """Write a new file and wait until it is on the disk."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        while data:
            data = data[os.write(file, data[:CHUNK_BYTES]) :]
        os.fsync(file)
    finally:
        os.close(file)


def measure(mib: int, repeats: int, folder: Path) -> None:
    """Run as the program: write by turns, or restart; rank 0 prints the seconds as JSON."""
    import reshape

    began = time.perf_counter()
    with reshape.application() as app:
        app.checkpoint(every=2, keep=1, dir=folder / "checkpoints")
        u = app.rows("u", (mib * (1 << 20) // 8 // COLUMNS, COLUMNS))
        (rows,) = u.layout.global_indices(app.comm.rank)[:1]
        figures: dict[str, Any] = {"ranks": app.comm.size}
        if app.is_fresh_start:
            u.local[:] = rows[:, None]
            figures |= write_by_turns(app, u.local, repeats, folder / f"copy-{app.comm.rank}")
        else:
            figures["restart_s"] = max(app.comm.allgather(time.perf_counter() - began))
            assert (u.local == rows[:, None]).all()
        if app.comm.rank == 0:
            print(json.dumps(figures))


def write_by_turns(app: Any, local: np.ndarray, repeats: int, copy: Path) -> dict[str, list[float]]:
    """Collective over app.comm. Seconds of each plain copy and of each checkpoint."""
    copies, checkpoints, removals = [], [], []
    began = 0.0
    for step in app.iterations(2 * repeats + 1):
        app.comm.Barrier()
        if step and step % 2 == 0:  # a checkpoint has just been written
            checkpoints.append(time.perf_counter() - began)
            while len(list(copy.parent.glob("checkpoints/iteration-*"))) > 1:
                time.sleep(0.01)
            removals.append(time.perf_counter() - began - checkpoints[-1])
        os.sync()
        time.sleep(SETTLE_S)
        app.comm.Barrier()
        began = time.perf_counter()
        if step % 2 == 0:
            plain_write(copy, memoryview(local).cast("B"))
            app.comm.Barrier()
            copies.append(time.perf_counter() - began)
            copy.unlink()
            os.sync()
    return {"plain_s": copies[1:], "checkpoint_s": checkpoints, "removal_s": removals[1:]}


def run(ranks: int, options: argparse.Namespace, folder: Path, **more: str) -> dict[str, Any]:
    """Run the program under mpiexec and return what it measured."""
    program = [sys.executable, str(Path(__file__).resolve()), "--program", "--dir", str(folder)]
    sizes = ["--mib", str(options.mib), "--repeats", str(options.repeats)]
    done = subprocess.run(
        [str(mpiexec_path()), "-n", str(ranks), *program, *sizes],
        env=clean_environment(os.environ) | more,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["ranks"] == ranks
    return found


def compare(options: argparse.Namespace) -> None:
    """Run the program fresh, then restarted, and print the figures."""
    with tempfile.TemporaryDirectory(dir=options.dir) as temporary:
        folder = Path(temporary)
        written = run(options.ranks, options, folder)
        source = {"RESHAPE_RESTART_FROM": str(folder / "checkpoints")}
        same = run(options.ranks, options, folder, **source)
        more = run(options.ranks + 1, options, folder, **source)
    kinds = ("plain_s", "checkpoint_s", "removal_s")
    plain_s, checkpoint_s, removal_s = (float(np.median(written[kind])) for kind in kinds)
    figures = {
        "mib": options.mib,
        "ranks": options.ranks,
        "repeats": options.repeats,
        "plain_s": plain_s,
        "checkpoint_s": checkpoint_s,
        "ratio": checkpoint_s / plain_s,
        "removal_s": removal_s,
        "restart_s": same["restart_s"],
        "restart_on_one_more_s": more["restart_s"],
        "all": written,
    }
    if options.json:
        print(json.dumps(figures))
        return
    print(f"{options.mib} MiB on {options.ranks} ranks, medians of {options.repeats}")
    print(f"plain write      {plain_s:8.3f} s  {options.mib / plain_s:8.0f} MiB/s")
    print(f"checkpoint       {checkpoint_s:8.3f} s  {options.mib / checkpoint_s:8.0f} MiB/s")
    print(f"ratio            {figures['ratio']:8.2f}    (goal: at most 1.3)")
    print(f"removal          {removal_s:8.3f} s  while the program computes")
    print(f"restart on {options.ranks:<5} {same['restart_s']:8.3f} s")
    print(f"restart on {options.ranks + 1:<5} {more['restart_s']:8.3f} s")


def main() -> None:
    """Compare, or run as the program that is measured."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--dir", type=Path, default=Path.cwd(), help="where the files are written")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--program", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.program:
        measure(options.mib, options.repeats, options.dir)
    else:
        compare(options)


if __name__ == "__main__":
    main()
