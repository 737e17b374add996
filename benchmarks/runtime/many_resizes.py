"""What many resizes leave in a process and on its host: descriptors, memory, mappings, files.

    python benchmarks/runtime/many_resizes.py [--resizes 200] [--mib 64]

A job with this amount of data is resized between 2 and 4 processors as often as it can be. Rank 0
counts what it holds eight times, always on 4 processors. The last line says what is left on the
host after the job has ended. Nothing may grow.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import time
from pathlib import Path

from resize_pause import reshape_command

import reshape
from scheduler import Client

SHARED = Path("/dev/shm")
COUNTS = ("descriptors", "threads", "mappings", "anonymous MiB", "shared MiB", "files", "mounts")


def of_process() -> list[int]:
    """Descriptors, threads, mappings, and resident MiB of private and of shared memory."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    mib = [int(status[name].split()[0]) // 1024 for name in ("RssAnon", "RssShmem")]
    mappings = len(Path("/proc/self/maps").read_text().splitlines())
    return [len(os.listdir("/proc/self/fd")), int(status["Threads"]), mappings, *mib]


def of_host() -> list[int]:
    """Files in shared memory, those in folders included, and mounts."""
    files = sum(len(names) for _, _, names in os.walk(SHARED))
    return [files, len(Path("/proc/self/mountinfo").read_text().splitlines())]


def program(mib: int, resizes: int) -> None:
    """Be a rank of the job; rank 0 prints its counts."""
    size, done = 0, 0
    with reshape.application() as app:
        data = app.block_cyclic("data", (128 * mib, 1024), (16, 64), dtype="i8")
        if app.is_fresh_start:
            data.local[:] = 1
        for _ in app.iterations(10**9):
            time.sleep(0.02)
            if app.comm.rank != 0 or app.comm.size == size:
                continue
            size, done = app.comm.size, done + 1
            if size == 4 and (done // 2 - 1) % max(1, resizes // 16) == 0:
                print(done, *of_process(), *of_host(), flush=True)


def measure(mib: int, resizes: int) -> None:
    """Run the job and print the table."""
    here = Path(__file__).resolve().parent
    os.environ["PYTHONPATH"] = f"{here.parent / 'reliability'}:{os.environ.get('PYTHONPATH', '')}"
    before = of_host()
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as outputs:
        options = ("--processors", "4", "--scenario", "restless:Restless", "--background")
        reshape_command("serve", "--dir", folder, *options)
        try:
            with Client(folder) as service:
                argv = [sys.executable, __file__, "--rank", f"--mib={mib}", f"--resizes={resizes}"]
                job = service.submit(
                    argv,
                    processors=2,
                    max_processors=4,
                    topology="arbitrary:step=2",
                    walltime=3600,
                    output=f"{outputs}/job",
                )
                while (info := job.info()).resize_count < resizes and info.ended_at is None:
                    time.sleep(0.5)
                job.cancel()
                job.wait()
                print(
                    f"{info.resize_count} resizes of {mib} MiB, pause {info.pause_s:.1f} s in all"
                )
        finally:
            reshape_command("stop", "--dir", folder, "--kill")
        print(f"{'resizes':>8}", *(f"{name:>14}" for name in COUNTS))
        for line in Path(f"{outputs}/job").read_text().splitlines():
            number, *counts = line.split() or [""]
            if number.isdigit():  # not the message that the job was cancelled
                print(f"{number:>8}", *(f"{count:>14}" for count in counts))
    left = [after - earlier for after, earlier in zip(of_host(), before, strict=True)]
    print(f"{'left':>8}", *(f"{count:>14}" for count in ["", "", "", "", "", *left]))


def main() -> None:
    """Read the options; measure, or be a rank."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the service ends, too
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--resizes", type=int, default=200)
    parser.add_argument("--mib", type=int, default=64)
    parser.add_argument("--rank", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    (program if options.rank else measure)(options.mib, options.resizes)


if __name__ == "__main__":
    main()
