"""Start a service as a background process, and stop it with its agents."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Sequence
from math import inf
from pathlib import Path

import psutil

from reshape.errors import ReshapeError, ServiceUnavailable
from reshape.wire.connection import is_access_file
from scheduler.client.api.client import ANSWER_S, Client
from scheduler.node.directory import ServiceDirectory
from scheduler.protocol.client import connect, expect
from scheduler.protocol.messages import Done, Failure, Info, ServerInfo, Stop

START_S = 60.0  # an idle machine needs less than 1 s, and a loaded one 20 s
#: Seconds between two messages about a service that does not answer yet.
PROGRESS_S = 10.0
STOP_S = 60.0


def start(directory: Path, options: Sequence[str]) -> subprocess.Popen[bytes]:
    """Start ``reshape serve`` detached from this process, its log in DIR/serve.log.

    Parameters
    ----------
    options : options of ``reshape serve``, without ``--dir``.

    Returns
    -------
    the process of the service, which answers requests and whose nodes are up.

    Raises
    ------
    ReshapeError : the service ended, or the agent of a node does not report in time; the message
        quotes the log.
    """
    service = ServiceDirectory(directory)
    service.create()
    log = service.log("serve")
    command = [sys.executable, "-m", "reshape", "serve"]
    with log.open("ab") as file:
        written = file.tell()
        process = subprocess.Popen(
            [*command, "--dir", str(service.path), "--log", str(log), *options],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            start_new_session=True,
        )
    try:
        _await_answer(service, process, log, written)
    except BaseException:
        _end(process)
        raise
    return process


def _await_answer(
    service: ServiceDirectory, process: subprocess.Popen[bytes], log: Path, written: int
) -> None:
    """Wait until the service answers and its nodes are up, except those that cannot be started.

    The time limit begins with the first answer, because a recovery may take longer than the start
    of the agents. Until then messages say that the service has not answered.
    """
    began = time.monotonic()
    until, report_at = inf, began + PROGRESS_S
    missing: dict[str, str] = {}
    while process.poll() is None and time.monotonic() < until:
        if not missing and time.monotonic() >= report_at:
            report_at += PROGRESS_S
            waited = round(time.monotonic() - began)
            text = f"process {process.pid} does not answer yet, after {waited} s; its log is {log}"
            print(f"reshape: {text}", file=sys.stderr)
        with contextlib.suppress(ServiceUnavailable), Client(service.path) as client:
            info = client.info(1.0)
            if info.pid == process.pid:  # else an older service still answers
                missing = info.awaited
                if all(missing.values()):  # the others are up; the service tries these again
                    for node, fault in missing.items():
                        print(f"reshape: node {node} is not up: {fault}", file=sys.stderr)
                    return
                until = min(until, time.monotonic() + START_S)
        time.sleep(0.02)
    if process.poll() is not None:
        text = _last_line(log, written).removeprefix("reshape: error: ")
        raise ReshapeError(f"the service ended with exit code {process.poll()}: {text}")
    node = next(node for node, fault in missing.items() if not fault)
    text = _last_line(service.log(f"agent-{node}"))
    raise ReshapeError(f"the agent of node {node} does not report within {START_S:g} s: {text}")


def _last_line(log: Path, begin: int = 0) -> str:
    """Return the last line of a log that was written after byte `begin`."""
    try:
        text = log.read_bytes()[begin:].decode(errors="replace").strip()
    except OSError as error:
        return f"{log}: {error.strerror}"
    return text.splitlines()[-1] if text else f"nothing in {log}"


def stop(directory: Path, *, kill: bool) -> None:
    """Stop a service and wait until its process and its agents have ended.

    Parameters
    ----------
    directory : the directory of the service, or an access file of an administrator.
    kill : end queued and running jobs too; otherwise a service that has any refuses.

    Raises
    ------
    ServiceUnavailable : there is no service.
    ReshapeError : the service refuses, or a process does not end in time.
    """
    is_local, running = not is_access_file(directory), ""
    until = time.monotonic() + STOP_S
    with connect(directory) as client:
        info = expect(Info, client.request(ServerInfo(), ANSWER_S))
        client.send(Stop(kill=kill), timeout=STOP_S)
        while time.monotonic() < until:
            answer = client.receive(0.02 if is_local else 0.5)
            if isinstance(answer, Failure):
                raise ReshapeError(answer.message)
            if is_local:  # the answer may be lost as the service ends; its end is an answer too
                running = _still_running(ServiceDirectory(directory), info)
                if not running:
                    return
            elif isinstance(answer, Done):  # its jobs and agents have ended
                return
            else:
                client.send(ServerInfo())  # raises if the connection is gone
    raise ReshapeError(f"the service of {directory} was asked to stop, but{running} still runs")


def _still_running(service: ServiceDirectory, info: Info) -> str:
    """Name a process of the service that still runs; "" if all have ended."""
    with contextlib.suppress(psutil.NoSuchProcess):
        if psutil.Process(info.pid).status() != psutil.STATUS_ZOMBIE:
            return f" its process {info.pid}"
    for node, _, _ in info.nodes:
        with service.agent_lock(node) as free:
            if not free:
                return f" its agent of node {node}"
    return ""


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(5.0)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
