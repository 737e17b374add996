"""A service as a process of its own: started so that it answers, ended so that nothing is left."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

from reshape.client import Client, endpoint_of
from reshape.errors import ReshapeError, ServiceUnavailable
from reshape.messages import Failure, Info, Stop
from scheduler.service.asking import service_info
from scheduler.service.directory import ServiceDirectory

START_S = 20.0  # an idle machine needs well below one
STOP_S = 30.0


def start(directory: Path, options: Sequence[str]) -> subprocess.Popen[bytes]:
    """Start ``reshape serve`` detached from this process, its log in DIR/serve.log.

    Parameters
    ----------
    options : of ``reshape serve``, without ``--dir``.

    Returns
    -------
    the process, which answers now and whose nodes are up

    Raises
    ------
    ReshapeError : it ended or did not answer in time; the message holds the end of its log.
    """
    place = ServiceDirectory(directory)
    place.create()
    log = place.log("serve")
    with log.open("ab") as file:
        written = file.tell()
        process = subprocess.Popen(
            [sys.executable, "-m", "reshape", "serve", "--dir", str(place.path), *options],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            start_new_session=True,
        )
    try:
        _await_answer(place, process, log, written)
    except BaseException:
        _end(process)
        raise
    return process


def _await_answer(
    place: ServiceDirectory, process: subprocess.Popen[bytes], log: Path, written: int
) -> None:
    until = time.monotonic() + START_S
    while time.monotonic() < until:
        if process.poll() is not None:
            break
        try:
            info = service_info(place.path, timeout=1.0)
        except ServiceUnavailable:
            time.sleep(0.02)
            continue
        if info.pid == process.pid and all(state == "up" for _, _, state in info.nodes):
            return
        time.sleep(0.02)
    with log.open("rb") as file:
        file.seek(written)
        said = file.read().decode(errors="replace").strip()
    last = said.splitlines()[-1].removeprefix("reshape: error: ") if said else "it said nothing"
    ended = process.poll()
    how = "does not answer" if ended is None else f"ended with exit code {ended}"
    raise ReshapeError(f"the service {how}: {last} (its log is {log})")


def stop(directory: Path, *, kill: bool) -> None:
    """End the service of a directory and wait until its process and its agents are gone.

    Parameters
    ----------
    kill : with its jobs; without it a service whose jobs are not over refuses.

    Raises
    ------
    ServiceUnavailable : there is none.
    ReshapeError : it refuses, or a process does not end.
    """
    info = service_info(directory)
    until = time.monotonic() + STOP_S
    with Client(endpoint_of(directory)) as client:
        client.send(Stop(kill=kill), timeout=STOP_S)
        # The answer may be lost as the service ends: that it is gone says the same.
        while (running := _still_running(ServiceDirectory(directory), info)) is not None:
            if time.monotonic() > until:
                raise ReshapeError(f"the service of {directory} was told to stop, {running} runs")
            if isinstance(answer := client.receive(0.02), Failure):
                raise ReshapeError(answer.message)


def _still_running(place: ServiceDirectory, info: Info) -> str | None:
    with contextlib.suppress(psutil.NoSuchProcess):
        if psutil.Process(info.pid).status() != psutil.STATUS_ZOMBIE:
            return f"but its process {info.pid} still"
    for node, _, _ in info.nodes:
        with place.agent_lock(node) as free:
            if not free:
                return f"but its agent of node {node} still"
    return None


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(5.0)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
