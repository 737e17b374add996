"""Every application without a service, on 1 to 6 ranks: its result is verified."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from app_runs import run_app
from collective import divided
from driver import run
from mpi4py import MPI

#: Sizes of the communicators that are made of all ranks: 1 to 4 and 6.
DIVISIONS = [(6,), (4, 2), (3, 2, 1)]
# Arguments (also with sizes that do not divide the data, and fewer rows than processes) and the
# output. The group of a number is an error, and at most 1e-14.
PLAIN = {
    "jacobi --n 60 --iterations 30": r"jacobi: n=60 iterations=30 processors={} max error 0\.0",
    "jacobi --n 3 --iterations 2 --sweeps 4": r"jacobi: n=3 iterations=2 processors={} max error",
    "lu --n 100 --block 8": r"lu: n=100 block=8 repeat=1 processors={} residual \d\.\d\de-0\d",
    "lu --n 50 --block 7 --repeat 2": r"lu: n=50 .* processors={} resid",
    "lu --n 5 --block 8": r"lu: n=5 block=8 repeat=1 processors={} residual",
    "synthetic --seconds 0 --mib 1": r"synthetic: iterations=7 processors={} 1 MiB",
    "synthetic --seconds 0 --mib 0 --iterations 0": r"synthetic: iterations=0 processors={} 0 MiB",
    "triad --mib 1 --iterations 4": r"triad: 1 MiB iterations=4 processors={} \d+ MB/s a process",
    "triad --mib 1 --iterations 0": r"triad: 1 MiB iterations=0 processors={} 0 MB/s a process",
    "fft2d --n 48 --iterations 4": r"fft2d: 48 x 48 iterations=4 processors={} max error (\S+)",
    "fft2d --n 37 --columns 23 --iterations 5": (
        r"fft2d: 37 x 23 iterations=5 processors={} max error (\S+)"
    ),
    "fft2d --n 2 --columns 5 --iterations 0": (
        r"fft2d: 2 x 5 iterations=0 processors={} max error (\S+)"
    ),
    "masterworker --tasks 0": r"masterworker: tasks=0 processors={} max error \S+",
    "masterworker --tasks 5 --batch 1": r"masterworker: tasks=5 processors={} max error \S+",
    "masterworker --tasks 200 --batch 7": r"masterworker: tasks=200 processors={} max error \S+",
}

on_6_ranks = pytest.mark.mpi(min_size=6)
of_all_sizes = pytest.mark.parametrize(
    "comm", DIVISIONS, ids=lambda sizes: "+".join(map(str, sizes)), indirect=True
)


@pytest.fixture
def comm(request: pytest.FixtureRequest) -> Iterator[MPI.Intracomm]:
    yield from divided(*request.param)


def verified(
    patch: pytest.MonkeyPatch, comm: MPI.Intracomm, arguments: str, line: str
) -> list[str]:
    """Collective over comm. Groups of the only line, which rank 0 prints; [] on other ranks."""
    code, output = run_app(patch, comm, arguments)
    assert code == 0, output
    if comm.rank:
        assert output == ""
        return []
    found = re.fullmatch(line, output)
    assert found, output
    return list(found.groups())


@on_6_ranks
@of_all_sizes
@pytest.mark.parametrize("arguments", PLAIN)
def test_result_is_verified(
    comm: MPI.Intracomm, monkeypatch: pytest.MonkeyPatch, arguments: str
) -> None:
    line = PLAIN[arguments].format(comm.size) + ".* verified\n"
    for error in verified(monkeypatch, comm, arguments, line):
        assert float(error) < 1e-14


def test_jacobi_continues_from_its_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    first = ["apps.jacobi", "--n", "60", "--iterations", "30", "--checkpoint", "10"]
    assert run(2, "-m", *first).returncode == 0
    more = ["apps.jacobi", "--n", "60", "--iterations", "45", "--checkpoint", "10"]
    done = run(3, "-m", *more, RESHAPE_RESTART_FROM="checkpoints")
    assert done.stdout == "jacobi: n=60 iterations=45 processors=3 max error 0.0e+00 verified\n"
    left = sorted(each.name for each in (tmp_path / "checkpoints").glob("iteration-*"))
    assert left == ["iteration-30", "iteration-40"]
