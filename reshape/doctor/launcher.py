"""Start test programs under an mpiexec with a time limit, and remove all that they leave."""

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

from reshape.mpi import clean_environment, mpiexec_path

_MARK = "RESHAPE_PROBE"  # environment variable that identifies the processes of one run
_SHARED = Path("/dev/shm")
_LOOKS, _PAUSE_S = 200, 0.02  # searches for remaining processes, and seconds between them


class ProbeResult(msgspec.Struct, frozen=True):
    """Facts that the ranks of one run have printed, and what went wrong (empty: nothing)."""

    facts: list[dict[str, Any]]
    fault: str


class Launcher:
    """Starts test programs under one mpiexec.

    Parameters
    ----------
    mpiexec : the mpiexec to examine; None: that of `mpiexec_path`.
    limit_s : seconds after which a run is ended and counts as failed.
    """

    def __init__(self, mpiexec: Path | None, limit_s: float) -> None:
        self._mpiexec, self.limit_s = mpiexec, limit_s

    @property
    def mpiexec(self) -> Path:
        """The mpiexec.

        Raises
        ------
        ReshapeError : there is none.
        """
        return self._mpiexec or mpiexec_path()

    def run(self, *worlds: tuple[int, Sequence[str]]) -> ProbeResult:
        """Start all worlds (ranks, program and its arguments) together and wait for their ends."""
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
                process.communicate()  # waits for it and closes its pipes
        if len(outputs) < len(worlds):
            return ProbeResult(
                [], f"not finished after {self.limit_s:g} s (--limit allows a slow machine more)"
            )
        facts = [fact for out, _ in outputs for fact in _facts(out)]
        codes = [process.returncode for process in started]
        if not any(codes):
            return ProbeResult(facts, "")
        errors = "\n".join(err for _, err in outputs)
        return ProbeResult(facts, f"exit code {max(codes, key=abs)}: {_error_line(errors)}")

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
        """Wait for all; raise subprocess.TimeoutExpired if one takes longer than the limit."""
        deadline = time.monotonic() + self.limit_s
        return [
            process.communicate(timeout=max(0.0, deadline - time.monotonic()))
            for process in started
        ]


def _facts(output: str) -> list[dict[str, Any]]:
    """Decode the lines that are JSON objects; an mpiexec may print other lines."""
    return [
        json.loads(line) for line in output.splitlines() if line[:1] == "{" and line[-1:] == "}"
    ]


def _error_line(errors: str) -> str:
    """Return the first line about an error or exception, else the first line."""
    lines = [line for line in errors.splitlines() if line and not line[0].isspace()]
    about_errors = [
        line for line in lines if "error" in line.lower() or "exception" in line.lower()
    ]
    return (about_errors or lines or ["nothing on stderr"])[0]


def end_marked(mark: str) -> None:
    """Kill every process whose environment contains the mark, and remove its shared memory.

    All are stopped before the first is killed. Otherwise a launcher would kill ranks when the first
    one ends, before their shared memory was listed here.
    """
    ours: dict[int, psutil.Process] = {}
    for _ in range(_LOOKS):  # new ones may be forked meanwhile
        new = [p for p in psutil.process_iter() if p.pid not in ours and _has_mark(p, mark)]
        if not new:
            break
        for process in new:
            ours[process.pid] = process
            _signal(process, signal.SIGSTOP)
    segments = {path for process in ours.values() for path in _shared_files(process)}
    for process in ours.values():
        _signal(process, signal.SIGKILL)
    for _ in range(_LOOKS):
        if not any(_has_mark(process, mark) for process in ours.values()):
            break
        time.sleep(_PAUSE_S)
    for segment in segments:
        segment.unlink(missing_ok=True)


def _signal(process: psutil.Process, number: signal.Signals) -> None:
    with suppress(psutil.Error):  # it has ended
        process.send_signal(number)


def _shared_files(process: psutil.Process) -> set[Path]:
    """Files in /dev/shm that the process has mapped or opened."""
    paths: set[str] = set()
    with suppress(psutil.Error):
        paths |= {area.path for area in process.memory_maps()}
        paths |= {file.path for file in process.open_files()}
    return {Path(path) for path in paths if Path(path).parent == _SHARED}


def _has_mark(process: psutil.Process, mark: str) -> bool:
    try:
        return process.environ().get(_MARK) == mark
    except (psutil.Error, OSError):  # it has ended, or belongs to another user
        return False
