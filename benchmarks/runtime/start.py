"""The processor time that a rank needs to start: what it imports, and the entry into its block.

    python benchmarks/runtime/start.py [--ranks 4] [--repeats 10] [--before FOLDER]

runs a program by itself, under mpiexec, and as a job of a service, `--repeats` times
each. A rank reads its processor time after the start of Python, after the imports of NumPy and MPI,
after that of this project, which includes all that `reshape.application` loads, and at the first
line of its block. The table has the median over the runs of the mean of the ranks, in ms. With
another checkout of this project as `--before`, both run in turn, and a table has the ratios.

Entry contains the waits of MPI, which polls: with more ranks than cores it says little.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from statistics import mean, median

HERE = Path(__file__).resolve()
PARTS = ("python", "numpy", "mpi", "reshape", "entry")


#: What a rank runs. It imports nothing else, since what it has imported costs nothing later.
PROGRAM = """\
from time import process_time
marks = [0.0, process_time()]
import numpy
marks.append(process_time())
import mpi4py.MPI
marks.append(process_time())
import reshape
start = reshape.application
marks.append(process_time())
with start() as app:
    marks.append(process_time())
    app.rows("u", (8,))
    for _ in app.iterations(1):
        pass
spent = [1e3 * (end - begin) for begin, end in zip(marks, marks[1:])]
import os
with open(f"{os.environ['RESHAPE_BENCHMARK_TIMES']}/{os.getpid()}", "w") as file:
    file.write(repr(spent))
"""


class Checkout:
    """A checkout of this project whose program is measured."""

    def __init__(self, folder: Path, scratch: Path) -> None:
        self.times = scratch / "times"
        self.times.mkdir(parents=True)
        self._program = scratch / "program.py"
        self._program.write_text(PROGRAM)
        # Compiled files are kept, as those of an installation are, but not in the checkout.
        variables = {"PYTHONPATH": str(folder), "PYTHONPYCACHEPREFIX": str(scratch / "pycache")}
        self._environment = {**os.environ, **variables, "RESHAPE_BENCHMARK_TIMES": str(self.times)}
        self._environment.pop("PYTHONDONTWRITEBYTECODE", None)
        self._place = ("--dir", str(scratch / "service"))
        self._output = str(scratch / "output")

    def run(self, command: list[str]) -> None:
        """Run a command to its end; its output is shown if it fails."""
        pipe = subprocess.PIPE
        kwargs = {"stdout": pipe, "stderr": subprocess.STDOUT, "text": True}
        done = subprocess.run(command, env=self._environment, check=False, **kwargs)  # type: ignore[call-overload]
        if done.returncode:
            raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout}")

    def reshape(self, name: str, *arguments: str) -> None:
        """Run a command of the project."""
        self.run([sys.executable, "-m", "reshape", name, *self._place, *arguments])

    def start(self, kind: str, ranks: int) -> list[float]:
        """Start the program once; return the mean of its ranks of each part, ms."""
        command = [sys.executable, str(self._program)]
        if kind == "alone":
            self.run(command)
        elif kind == "mpiexec":
            self.run([str(Path(sys.executable).with_name("mpiexec")), "-n", str(ranks), *command])
        else:
            options = ("-n", str(ranks), "--output", self._output, "--wait")
            self.reshape("submit", *options, "--", *command)
        files = list(self.times.iterdir())
        spent = [json.loads(file.read_text()) for file in files]
        for file in files:
            file.unlink()
        assert len(spent) == (1 if kind == "alone" else ranks)
        return [mean(part) for part in zip(*spent, strict=True)]


def measure(checkouts: list[Checkout], ranks: int, repeats: int) -> dict[str, list[list[float]]]:
    """Medians of each part by kind of start, a row for each checkout; they run in turn."""
    medians = {}
    for kind in ("alone", "mpiexec", "service"):
        runs: defaultdict[int, list[list[float]]] = defaultdict(list)
        for repeat in range(repeats + 1):
            for number, checkout in enumerate(checkouts):
                spent = checkout.start(kind, ranks)
                if repeat:  # the first run may compile
                    runs[number].append(spent)
        medians[kind] = [[median(part) for part in zip(*runs[n], strict=True)] for n in runs]
    return medians


def main() -> None:
    """Read the options; measure, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--before", type=Path)
    options = parser.parse_args()
    folders = [HERE.parents[2]] + ([] if options.before is None else [options.before.resolve()])
    with tempfile.TemporaryDirectory() as scratch:
        checkouts = [Checkout(folder, Path(scratch, str(n))) for n, folder in enumerate(folders)]
        try:
            for checkout in checkouts:
                size = str(options.ranks)
                checkout.reshape(
                    "serve", "--processors", size, "--scenario", "easy", "--background"
                )
            medians = measure(checkouts, options.ranks, options.repeats)
        finally:
            for checkout in checkouts:
                checkout.reshape("stop", "--kill")
    print(f"processor time of a rank, ms; {options.ranks} ranks, {options.repeats} runs")
    print(f"{'':8} {'':8}", *(f"{part:>8}" for part in PARTS))
    for kind, rows in medians.items():
        for name, row in zip(("now", "before"), rows, strict=False):
            print(f"{kind:8} {name:8}", *(f"{spent:8.1f}" for spent in row))
        if len(rows) > 1:
            ratios = (now / max(before, 1e-9) for now, before in zip(*rows, strict=True))
            print(f"{kind:8} {'ratio':8}", *(f"{ratio:8.2f}" for ratio in ratios))


if __name__ == "__main__":
    main()
