"""Start probe programs under an mpiexec, with a time limit, and leave nothing of them behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import psutil

from reshape.mpi import clean_environment

_MARK = "RESHAPE_PROBE"  # environment variable by which the processes of one run are known
_SHARED = Path("/dev/shm")
_LOOKS, _PAUSE_S = 200, 0.02  # how often, and how far apart, to look for processes left


class ProbeResult(msgspec.Struct, frozen=True):
    """How the worlds of one run ended: the facts their ranks told, and what went wrong, if so."""

    facts: list[dict[str, Any]]
    trouble: str


class Launcher:
    """Starts probe programs under one mpiexec.

    Parameters
    ----------
    mpiexec : the mpiexec to examine.
    limit_s : seconds after which a run is ended and counts as failed.
    """

    def __init__(self, mpiexec: Path, limit_s: float) -> None:
        self.mpiexec, self.limit_s = mpiexec, limit_s

    def run(self, *worlds: tuple[int, Sequence[str]]) -> ProbeResult:
        """Start every world (ranks, program and its arguments) at once and wait for all."""
        mark = uuid.uuid4().hex
        started: list[subprocess.Popen[str]] = []
        try:
            for ranks, program in worlds:
                started.append(self._start(ranks, program, mark))
            outputs = self._outputs(started)
        except subprocess.TimeoutExpired:
            outputs = []
        except OSError as error:
            return ProbeResult([], str(error))
        finally:
            end_marked(mark)
            for process in started:
                process.communicate()  # reap it, close its pipes
        if len(outputs) < len(worlds):
            return ProbeResult(
                [], f"not done after {self.limit_s:g} s (a slow machine? see --limit)"
            )
        facts = [fact for out, _ in outputs for fact in _facts(out)]
        codes = [process.returncode for process in started]
        if not any(codes):
            return ProbeResult(facts, "")
        errors = "\n".join(err for _, err in outputs)
        return ProbeResult(facts, f"exit code {max(codes, key=abs)}: {_telling_line(errors)}")

    def _start(self, ranks: int, program: Sequence[str], mark: str) -> subprocess.Popen[str]:
        modules = ["-m", "mpi4py", "-m", "reshape.doctor.programs"]
        return subprocess.Popen(
            [str(self.mpiexec), "-n", str(ranks), sys.executable, *modules, *program],
            env=clean_environment(os.environ) | {_MARK: mark},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )

    def _outputs(self, started: list[subprocess.Popen[str]]) -> list[tuple[str, str]]:
        """Wait for all; raises subprocess.TimeoutExpired if one is not done in time."""
        deadline = time.monotonic() + self.limit_s
        return [
            process.communicate(timeout=max(0.0, deadline - time.monotonic()))
            for process in started
        ]


def _facts(output: str) -> list[dict[str, Any]]:
    """Lines of output that are JSON objects; an mpiexec may print lines of its own."""
    return [
        json.loads(line) for line in output.splitlines() if line[:1] == "{" and line[-1:] == "}"
    ]


def _telling_line(errors: str) -> str:
    """Pick the line that says most: the first of an error or exception, else the first."""
    lines = [line for line in errors.splitlines() if line and not line[0].isspace()]
    telling = [line for line in lines if "error" in line.lower() or "exception" in line.lower()]
    return (telling or lines or ["nothing on stderr"])[0]


def end_marked(mark: str) -> None:
    """Kill every process that carries the mark, wherever in the process tree it hangs.

    They are all stopped before the first is killed: a launcher that sees a rank die kills the
    others, and a rank killed before we looked leaves shared memory that nobody can attribute.
    """
    ours: dict[int, psutil.Process] = {}
    for _ in range(_LOOKS):  # new ones may be forked while we look
        new = [p for p in psutil.process_iter() if p.pid not in ours and _carries(p, mark)]
        if not new:
            break
        for process in new:
            ours[process.pid] = process
            _signal(process, signal.SIGSTOP)
    segments = {path for process in ours.values() for path in _shared_files(process)}
    for process in ours.values():
        _signal(process, signal.SIGKILL)
    for _ in range(_LOOKS):
        if not any(_carries(process, mark) for process in ours.values()):
            break
        time.sleep(_PAUSE_S)
    for segment in segments:
        segment.unlink(missing_ok=True)


def _signal(process: psutil.Process, number: signal.Signals) -> None:
    with suppress(psutil.Error):  # gone meanwhile
        process.send_signal(number)


def _shared_files(process: psutil.Process) -> set[Path]:
    """Files in /dev/shm that the process has mapped or is about to map."""
    paths: set[str] = set()
    with suppress(psutil.Error):
        paths |= {area.path for area in process.memory_maps()}
        paths |= {file.path for file in process.open_files()}
    return {Path(path) for path in paths if Path(path).parent == _SHARED}


def _carries(process: psutil.Process, mark: str) -> bool:
    try:
        return process.environ().get(_MARK) == mark
    except (psutil.Error, OSError):  # gone meanwhile, or not ours to look at
        return False
