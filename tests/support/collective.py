"""Collective tests: functions marked ``mpi``, whose body runs on all ranks of an MPI world.

An ordinary run of pytest contains each of them under its own name. The first one of a file starts
``mpiexec -n N python -m pytest --with-mpi`` with all selected tests of the file that need as many
ranks; each passes if it has passed on every rank::

    @pytest.mark.mpi(min_size=4)
    def test_all_ranks_agree() -> None:
        comm = MPI.COMM_WORLD  # of exactly 4 ranks

The mark takes variables of the world as ``environment={"NAME": "value"}``. A rank that fails in a
test ends its world, since other ranks may wait for it. The tests that follow run in a new world.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest

#: Limits of a test and of a world. The first one is reached first and prints where ranks wait.
TEST_S, WORLD_S = 100, 240
REPORTS = "--rank-reports"
#: A rank starts three times as fast without Hypothesis and other plugins.
PLUGINS = ("-p", "pytest_mpi", "-p", "pytest_timeout", "-p", "no:cacheprovider")
VARIABLES = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "OMP_NUM_THREADS": "1"}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option by which a world is told where its ranks report."""
    parser.addoption(REPORTS, metavar="FOLDER", help="used by mpiexec of collective tests")


def pytest_configure(config: pytest.Config) -> None:
    """Let this process report as a rank, or run the collective tests in worlds of their own."""
    if config.getoption("--with-mpi"):
        config.pluginmanager.register(Rank(config))
    else:
        config.pluginmanager.register(Worlds())


# ---------------------------------------------------------------- within a world


class Rank:
    """Writes the result of each test to a file, and ends the world after a failure."""

    def __init__(self, config: pytest.Config) -> None:
        from mpi4py import MPI

        self._comm, self._stream = MPI.COMM_WORLD, None
        folder = config.getoption(REPORTS)
        if folder is not None:
            self._stream = report_path(Path(folder), self._comm.rank).open("w")
            # Ranks that look for a free name at the same time might remove each other's folders.
            config.option.basetemp = str(Path(folder) / f"tmp-{self._comm.rank}")

    def pytest_collection_finish(self) -> None:
        self._meet()

    @pytest.hookimpl(wrapper=True, tryfirst=True)  # out of the time limit of the test
    def pytest_runtest_protocol(self) -> Generator[None, bool, bool]:
        result = yield
        self._meet()
        return result

    def _meet(self) -> None:
        """Wait for all ranks; in MPI they would use the cores that the others need."""
        request = self._comm.Ibarrier()
        while not request.Test():
            time.sleep(0.002)

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Skip tests of other worlds, if a user has started this one."""
        mark = item.get_closest_marker("mpi")
        if mark is not None:
            size, environment = needs(mark)
            if size != self._comm.size or not environment.items() <= os.environ.items():
                pytest.skip(f"needs a world of {size} ranks {environment or ''}".rstrip())

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._write(report.nodeid, report)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or not report.passed:
            self._write(report.nodeid, report)

    def _write(self, nodeid: str, report: pytest.CollectReport | pytest.TestReport) -> None:
        text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        if self._stream is not None:
            print(json.dumps([nodeid, report.outcome, text]), file=self._stream, flush=True)
        if report.failed:
            print(f"rank {self._comm.rank}, {nodeid}:\n{text}", file=sys.stderr, flush=True)
            self._comm.Abort(1)
            os._exit(1)  # Abort of MPICH 5 returns

    def pytest_unconfigure(self) -> None:
        if self._stream is not None:
            self._stream.close()


def needs(mark: pytest.Mark) -> tuple[int, dict[str, str]]:
    """Ranks and variables of the world that a test is marked for."""
    return mark.kwargs["min_size"], mark.kwargs.get("environment", {})


def report_path(folder: Path, rank: int) -> Path:
    return folder / f"rank-{rank}.jsonl"


# ---------------------------------------------------------------- outside of MPI


class Result(NamedTuple):
    """How a test ended: "passed", "skipped" or "failed", and why."""

    outcome: str
    text: str


class World:
    """The collective tests of a file that run in the same world, and their results."""

    def __init__(self, config: pytest.Config, size: int, environment: dict[str, str]) -> None:
        self.size, self.environment = size, environment
        self.tests: list[str] = []
        self._root = config.rootpath
        self._results: dict[str, Result] = {}

    def result(self, nodeid: str) -> Result:
        """Result of a test, for which a world is started if the test has not run yet."""
        if nodeid not in self._results:
            self._start(self.tests[self.tests.index(nodeid) :])
        return self._results[nodeid]

    def _start(self, tests: list[str]) -> None:
        """Run tests until one fails; the result of the first one is known then."""
        with tempfile.TemporaryDirectory(prefix="reshape-collective-") as folder:
            code, output = run_world(self._root, self.size, self.environment, folder, tests)
            ranks = [read_results(report_path(Path(folder), rank)) for rank in range(self.size)]
        end = f"mpiexec ended with exit code {code}:\n{output}"
        for nodeid in tests:
            result = common_result(nodeid, ranks, end)
            if nodeid == tests[-1] and result.outcome != "failed" and code != 0:
                result = Result("failed", f"After the last test, {end}")
            self._results[nodeid] = result
            if result.outcome == "failed":
                return


def read_results(path: Path) -> dict[str, Result]:
    """Results by test, and of collections by file."""
    results: dict[str, Result] = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        nodeid, *result = json.loads(line)
        results[nodeid] = Result(*result)
    return results


def common_result(nodeid: str, ranks: Sequence[dict[str, Result]], end: str) -> Result:
    """Result of a test from the results of all ranks, which have to be the same."""
    file = nodeid.partition("::")[0]
    results = [rank.get(nodeid) or rank.get(file) for rank in ranks]
    failures = [
        f"rank {rank} of {len(ranks)}: {first_error(result.text)}\n{result.text}"
        for rank, result in enumerate(results)
        if result is not None and result.outcome == "failed"
    ]
    if failures:
        return Result("failed", "\n".join(failures))
    outcomes = ["did not end" if result is None else result.outcome for result in results]
    if results[0] is None or len(set(outcomes)) > 1:
        by_rank = "\n".join(f"rank {rank}: {outcome}" for rank, outcome in enumerate(outcomes))
        return Result("failed", f"the ranks differ\n{by_rank}\n{end}")
    return results[0]


def first_error(text: str) -> str:
    """Line of a report that names the error."""
    lines = text.splitlines()
    return next((line[1:].strip() for line in lines if line.startswith("E ")), lines[-1])


def run_world(
    root: Path, size: int, environment: dict[str, str], folder: str, tests: Sequence[str]
) -> tuple[int, str]:
    """Exit code and output of mpiexec; its processes have ended on return."""
    from reshape.mpi import clean_environment, mpiexec_path
    from scheduler.node.leftovers import remove_mpi_files

    inherited = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    process = subprocess.Popen(
        [
            *(str(mpiexec_path()), "-n", str(size), sys.executable, "-m", "pytest", "--with-mpi"),
            *(REPORTS, folder, "-q", "--capture=no", "-o", "addopts=", *PLUGINS),
            # A rank that waits in MPI cannot handle signals.
            *("--timeout", str(TEST_S), "--timeout-method", "thread", *tests),
        ],
        cwd=root,
        env=clean_environment(inherited) | VARIABLES | environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=WORLD_S)
    except subprocess.TimeoutExpired:
        output = f"it was killed after {WORLD_S} s\n{end(process)}"
    finally:
        end(process)
        if process.returncode != 0:
            remove_mpi_files()
    return process.returncode, output


def end(process: subprocess.Popen[str]) -> str:
    """End mpiexec and its ranks, if they run; return the rest of the output."""
    if process.poll() is not None:
        return ""
    process.terminate()
    try:
        return process.communicate(timeout=5)[0]
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return process.communicate()[0]


class Worlds:
    """Puts a test that runs in a world in the place of each collective test."""

    @pytest.hookimpl(trylast=True)  # after tests have been deselected
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        worlds: dict[tuple[Any, ...], World] = {}
        for place, item in enumerate(items):
            mark = item.get_closest_marker("mpi")
            if mark is None:
                continue
            size, environment = needs(mark)
            key = (item.path, size, *sorted(environment.items()))
            world = worlds.setdefault(key, World(config, size, environment))
            world.tests.append(item.nodeid)
            items[place] = CollectiveTest.from_parent(
                item.parent, name=item.name, world=world, location=item.reportinfo()
            )


class CollectiveTest(pytest.Item):
    """A collective test as a run without MPI sees it."""

    def __init__(self, *, world: World, location: Any, **keywords: Any) -> None:
        super().__init__(**keywords)
        self._world, self._location = world, location

    def runtest(self) -> None:
        outcome, text = self._world.result(self.nodeid)
        if outcome == "skipped":
            pytest.skip(text.removeprefix("Skipped: "))
        if outcome == "failed":
            raise CollectiveError(text)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], *_: Any) -> Any:
        if isinstance(excinfo.value, CollectiveError):
            return str(excinfo.value)
        return super().repr_failure(excinfo)

    def reportinfo(self) -> Any:
        return self._location


class CollectiveError(Exception):
    """A test failed on some rank; the text contains the report of that rank."""


# ---------------------------------------------------------------- for collective tests


def divided(*sizes: int) -> Iterator[Any]:
    """Divide the ranks of the world, for fixtures; yield the communicator of this rank.

    Parameters
    ----------
    sizes : of the communicators, which contain all ranks together.
    """
    from mpi4py import MPI

    world, ends = MPI.COMM_WORLD, [sum(sizes[:count]) for count in range(len(sizes) + 1)]
    assert ends[-1] == world.size
    color = next(k for k, (low, high) in enumerate(pairwise(ends)) if low <= world.rank < high)
    comm = world.Split(color, world.rank)
    yield comm
    comm.Free()
