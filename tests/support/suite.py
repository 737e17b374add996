"""Kinds of tests: which kind a test is of, the order of a run, and the times at its end.

A test that needs more than its folder says carries one of the markers `hosts`, `slurm`, `campaign`,
`studies` and `long`; `make test` leaves these out. All other tests are of the kind of their folder.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable
from itertools import groupby

import pytest

#: Markers, and the minutes that their tests and those of the other kinds may take, added up, in
#: `make test-all`, which runs six at a time on two cores.
MARKERS = {
    "hosts": "needs hosts made of namespaces, and so root",
    "slurm": "needs a Slurm on such hosts",
    "campaign": "rounds with faults, or services under attack",
    "studies": "runs studies of papers",
    "long": "explores more examples than a change to the code needs",
}
BUDGETS_MIN = {
    "unit": 32.0,
    "mpi": 20.0,
    "service": 30.0,
    "hosts": 11.0,
    "slurm": 10.0,
    "campaign": 6.0,
    "studies": 5.0,
    "long": 30.0,
}
_FOLDERS = {
    "tests/apps": "mpi",
    "tests/examples": "service",
    "tests/redistribution": "mpi",
    "tests/reshape": "mpi",
    "tests/scheduler/client": "service",
    "tests/scheduler/client/demo": "service",
    "tests/scheduler/node": "service",
    "tests/scheduler/service": "service",
    "tests/scheduler/service/components": "unit",
    "tests/scheduler/journal": "unit",
}
#: Kinds whose tests mostly wait for processes; the others compute.
_WAITING = ("slurm", "hosts", "campaign", "service", "mpi")


def kind_of(path: str, markers: Iterable[str]) -> str:
    """Return the kind of a test: `path` is that of its file, relative to the root."""
    for marker in MARKERS:
        if marker in markers:
            return marker
    folder = path
    while folder:
        folder = folder.rpartition("/")[0]
        if folder in _FOLDERS:
            return _FOLDERS[folder]
    return "unit"


def _kind(item: pytest.Item) -> str:
    return kind_of(item.nodeid.partition("::")[0], {mark.name for mark in item.iter_markers()})


def mixed(items: list[pytest.Item]) -> list[pytest.Item]:
    """Return tests file by file, files that wait and files that compute in turn.

    The files of slow kinds come first, and of each kind those with the most tests, so that no long
    file begins when the others have ended. In a run with several processes the cores then have work
    while tests wait.
    """
    files = [list(group) for _, group in groupby(items, lambda item: item.path)]
    waiting = [tests for tests in files if _kind(tests[0]) in _WAITING]
    waiting.sort(key=lambda tests: (_WAITING.index(_kind(tests[0])), -len(tests)))
    computing = [tests for tests in files if _kind(tests[0]) not in _WAITING]
    computing.sort(key=len, reverse=True)
    order: list[tuple[float, list[pytest.Item]]] = []
    for group in (waiting, computing):
        order += [((i + 0.5) / len(group), tests) for i, tests in enumerate(group)]
    return [test for _, tests in sorted(order, key=lambda pair: pair[0]) for test in tests]


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers, and let the processes of several tests share the cores.

    A rank of MPICH that waits takes its core for itself. With eight ranks on two cores, an exchange
    is four times as fast if a waiting rank gives its core up. A process that imports NumPy starts
    a thread of its BLAS for each core, which takes a third of the processor time of the import.
    """
    os.environ.setdefault("MPIR_CVAR_ENABLE_HEAVY_YIELD", "1")
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    for name, meaning in MARKERS.items():
        config.addinivalue_line("markers", f"{name}: {meaning}")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Order the tests of a run with several processes."""
    if hasattr(config, "workerinput"):  # a process of pytest-xdist
        items[:] = mixed(items)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Compare the times of the kinds with their budgets."""
    seconds: dict[str, float] = defaultdict(float)
    counts: dict[str, int] = defaultdict(int)
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                kind = kind_of(report.nodeid.partition("::")[0], report.keywords)
                seconds[kind] += report.duration
                counts[kind] += report.when == "call" or report.skipped
    if sum(counts.values()) < 2:
        return
    terminalreporter.section("kinds of tests")
    terminalreporter.line(f"{'kind':10}{'tests':>7}{'minutes':>9}{'budget':>8}")
    for kind, budget in BUDGETS_MIN.items():
        if counts[kind]:
            minutes = seconds[kind] / 60
            over = "  above its budget" if minutes > budget else ""
            terminalreporter.line(f"{kind:10}{counts[kind]:7}{minutes:9.1f}{budget:8.1f}{over}")
