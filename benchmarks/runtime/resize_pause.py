"""The pause of a resize by phase, under a live service.

    python benchmarks/runtime/resize_pause.py [--mib 256,16] [--kinds cyclic,rows,blocks,particles]
        [--repeats 1] [--verify] [--messages] [--no-spares] [--small-pages]

A job with this amount of data starts on 2 of 6 processors and expands to 6 in steps of 2. Then a
rigid job of 4 processors is submitted, for which it contracts to 2; when that has ended, it expands
again. The table has one line for each resize, with the times that rank 0 of the job measured:

    join     all ranks stop, restart point, port, accept, merge, introduction
    plan     layouts and transfers
    move     new segments, exchange, and with --verify the checksums before and after
    resume   wait for the slowest rank, commit, release of old segments and communicators
    memcpy   copying the bytes that were moved on one core, in the same run
    spare    memory beside the data that the processes keep for the next resize

With --kinds there is a job for each kind of data of equal bytes, by turns, and a second table with
the medians of the sums and their ratios to the first kind. "particles" belong to cells, "records"
are particles that are divided evenly.

With --no-spares the processes keep and prepare no memory. With --small-pages memory is on pages of
4 KiB, as of a kernel before Linux 6.1. With --messages the data is sent, as between nodes, instead
of being read from shared memory. The start of a group is not part of the pause, because the job
computes meanwhile.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from scheduler import Client, JobHandle
from scheduler.protocol.job_questions import ResizeInfo


def reshape_command(*arguments: str) -> None:
    """Run the command of this Python."""
    command = [sys.executable, "-m", "reshape", *arguments]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def wait_for(job: JobHandle, count: int) -> list[ResizeInfo]:
    """Wait until this many resizes are done, and return them.

    The request takes a millisecond: a command that asked every 0.2 s would occupy one core.
    """
    deadline = time.monotonic() + 300
    while len(done := [r for r in job.info().resizes if r.outcome == "done"]) < count:
        if time.monotonic() > deadline:
            raise SystemExit(f"only {len(done)} of {count} resizes within 300 s")
        time.sleep(0.2)
    return done


# What an option changes in the ranks before they run the program.
CHANGES = {
    # On one host the runtime sends messages only to ranks whose memory it cannot map.
    "messages": (
        "import scipy.optimize; "  # as `rank_order.prepare` does of jobs on several hosts
        "import reshape.resizing.move as move; reach = move.reach_of_ranks; "
        "move.reach_of_ranks = lambda job, comm, source: "
        "reach(job, comm, source)._replace(hosts=tuple(range(comm.size)))"
    ),
    # The application says what a process keeps; this program leaves that to the runtime.
    "no_spares": (
        "import reshape; application = reshape.application; "
        "reshape.application = lambda *a, **k: application(*a, **k, spare_bytes=0)"
    ),
    # An advice that no kernel knows, as huge pages are for a kernel before Linux 6.1.
    "small_pages": "import reshape.data.mapped_files as files; files._COLLAPSE = 9999",
}
PROGRAM = Path(__file__).with_name("data_of_kind.py")
RUN = f"import runpy; runpy.run_path({str(PROGRAM)!r}, run_name='__main__')"
KINDS = ("cyclic", "rows", "blocks", "particles", "records")


def memcpy_ms(size: int) -> float:
    """Time of a copy between two arrays that have been accessed before; the best of five."""
    source, target = np.ones(size, np.uint8), np.ones(size, np.uint8)
    times = []
    for _ in range(5):
        began = time.perf_counter()
        np.copyto(target, source)
        times.append(time.perf_counter() - began)
    return 1000 * min(times)


def measure(kind: str, mib: int, verify: bool, changes: list[str]) -> list[ResizeInfo]:
    """Expand a job twice, contract it twice, expand it again, and print the table."""
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as outputs:
        serve = ("--processors", "6", "--scenario", "fcfs-pr", "--background")
        reshape_command("serve", "--dir", folder, *serve, *(["--verify"] if verify else []))
        try:
            code = "; ".join([*(CHANGES[name] for name in changes), RUN])
            program = (sys.executable, "-c", code, kind, str(mib))
            length = ("1000", "2.0")  # iterations, and seconds of one on one process
            with Client(folder) as service:
                job = service.submit(
                    [*program, *length],
                    processors=2,
                    max_processors=6,
                    topology="arbitrary:step=2",
                    walltime=600,
                    output=f"{outputs}/resizable",
                )
                wait_for(job, 2)
                rigid = (sys.executable, "-m", "apps.synthetic", "--mib", "0", "--seconds", "0.1")
                service.submit(rigid, processors=4, walltime=60, output=f"{outputs}/rigid")
                done = wait_for(job, 6)
            names = [name.replace("_", " ") for name in changes]
            how = ", ".join([kind, *names, *(["verify"] if verify else [])])
            table(done, mib, how)
            return done
        finally:
            reshape_command("stop", "--dir", folder, "--kill")


def table(rows: list[ResizeInfo], mib: int, how: str) -> None:
    """Print the phases in milliseconds."""
    print(f"pause of a resize, ms; {mib} MiB registered, {how}, {os.cpu_count()} cores")
    headings = ("join", "plan", "move", "resume", "sum", "memcpy")
    print(f"{'resize':>8}", *(f"{n:>8}" for n in headings), f"{'MiB moved':>10} {'MiB spare':>10}")
    for row in rows:
        phases = [1000 * each for each in (row.join_s, row.plan_s, row.move_s, row.resume_s)]
        phases += [sum_ms(row), memcpy_ms(row.moved_bytes)]
        print(
            f"{row.old:>4}->{row.new:<2}",
            *(f"{phase:8.1f}" for phase in phases),
            f"{row.moved_bytes / 2**20:10.1f} {row.spare_bytes / 2**20:10.1f}",
        )


def sum_ms(row: ResizeInfo) -> float:
    """Pause of a resize."""
    return 1000 * (row.join_s + row.plan_s + row.move_s + row.resume_s)


def compare(runs: dict[str, list[list[ResizeInfo]]], mib: int) -> None:
    """Print the median pauses of each kind, and their ratios to the first kind."""
    print(f"median pauses, ms, and ratios to {next(iter(runs))}; {mib} MiB")
    resizes = [f"{row.old}->{row.new}" for row in next(iter(runs.values()))[0]]
    print(f"{'kind':>10}", *(f"{resize:>14}" for resize in resizes), f"{'all':>6}")
    first: list[float] = []
    for kind, done in runs.items():
        medians = [statistics.median(map(sum_ms, column)) for column in zip(*done, strict=True)]
        first = first or medians
        ratios = [own / other for own, other in zip(medians, first, strict=True)]
        texts = [f"{ms:8.1f} {ratio:5.2f}" for ms, ratio in zip(medians, ratios, strict=True)]
        print(f"{kind:>10}", *texts, f"{sum(medians) / sum(first):6.2f}")


def main() -> None:
    """Read the options and measure."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the service ends, too
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mib", default="256", help="several: separated by commas")
    parser.add_argument("--kinds", default="cyclic", help=f"of data, of {', '.join(KINDS)}")
    parser.add_argument("--repeats", type=int, default=1, help="jobs of each kind")
    parser.add_argument("--verify", action="store_true", help="compare checksums")
    for name in CHANGES:
        parser.add_argument(f"--{name.replace('_', '-')}", action="store_true")
    options = parser.parse_args()
    changes = [name for name in CHANGES if getattr(options, name)]
    kinds = options.kinds.split(",")
    if unknown := set(kinds) - set(KINDS):
        parser.error(f"--kinds: {', '.join(unknown)}: expected some of {', '.join(KINDS)}")
    for mib in map(int, options.mib.split(",")):
        runs: dict[str, list[list[ResizeInfo]]] = {kind: [] for kind in kinds}
        for _ in range(options.repeats):
            for kind in kinds:
                runs[kind].append(measure(kind, mib, options.verify, changes))
        if len(kinds) * options.repeats > 1:
            compare(runs, mib)


if __name__ == "__main__":
    main()
