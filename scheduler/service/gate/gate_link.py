"""The service's side of its gate: opens the port, keeps the process running, reads its reports."""

from __future__ import annotations

import errno
import logging
import os
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from reshape.errors import ConfigError
from scheduler.config.checks import parse_listen
from scheduler.service.gate.gate_process import GateReport, decode_report

log = logging.getLogger(__name__)

#: Most TCP connections that the kernel accepts before the gate does; it may have a lower limit.
#: If it is small, many agents that connect at the same moment are delayed by seconds: the kernel
#: drops the other connections, and their peers try again after 1, 3 and 7 s.
BACKLOG = 4096
#: Seconds between two starts of a gate.
RESTART_S = 1.0
#: Seconds in which the gate of a service that was killed closes the port.
RELEASE_S = 2.0
#: Seconds in which a gate ends when its service does.
END_S = 3.0


class GateLink:
    """Keeps one gate running.

    Parameters
    ----------
    listen : ``HOST:PORT``.
    lanes : paths of the sockets on which the service listens for the gate.
    log_file : file for the messages of the gate, of which there are none as long as it works.

    Attributes
    ----------
    reports : file descriptor that is readable when the gate has reported something.
    address : numeric address of the port.

    Raises
    ------
    ConfigError : `listen` is invalid or in use.
    """

    def __init__(self, listen: str, lanes: Sequence[Path], log_file: Path) -> None:
        self._port = _open_port(listen)
        host, port = self._port.getsockname()[:2]
        self.address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._lanes, self._log_file = lanes, log_file
        self.reports, self._reporting = os.pipe()
        os.set_blocking(self.reports, False)
        self._read = b""
        self._process: subprocess.Popen[bytes] | None = None
        self._started_at = -RESTART_S  # monotonic seconds

    def keep_running(self) -> None:
        """Start a gate if there is none."""
        now = time.monotonic()
        ended = self._process is None or self._process.poll() is not None
        if not ended or now - self._started_at < RESTART_S:
            return
        if self._process is not None:
            log.warning("the gate ended with %s; another is started", self._process.returncode)
            self.close_process()
        self._started_at = now
        module = "scheduler.service.gate.gate_process"
        port = self._port.fileno()
        try:
            with self._log_file.open("ab") as output:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", module, str(port), *map(str, self._lanes)],
                    stdin=subprocess.PIPE,
                    stdout=self._reporting,
                    stderr=output,
                    pass_fds=[port],
                    start_new_session=True,  # Ctrl-C is for the service
                )
        except OSError as error:
            log.error("the gate cannot be started: %s", error)

    def read(self) -> list[GateReport]:
        """Return what the gate has reported."""
        try:
            self._read += os.read(self.reports, 1 << 16)
        except BlockingIOError:
            return []
        *lines, self._read = self._read.split(b"\n")
        return [decode_report(line) for line in lines]

    def note_received(self, address: str) -> None:
        """Tell the gate that the service has received a message of a client it asked about."""
        if self._process is not None and self._process.stdin is not None:
            try:
                os.write(self._process.stdin.fileno(), f"{address}\n".encode())
            except OSError as error:  # it has ended
                log.debug("cannot write to the gate: %s", error)

    def close_process(self) -> None:
        """End the gate, after it has passed on the last messages of the service."""
        if self._process is None:
            return
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def close(self) -> None:
        """Close the port and end the gate."""
        self._port.close()
        self.close_process()
        os.close(self.reports)
        os.close(self._reporting)


def _open_port(listen: str) -> socket.socket:
    """Listen on a TCP port, on all addresses of both protocols if the host is ``*`` or ``[::]``."""
    host, number = parse_listen(listen)
    try:
        family, address = _address(host, number)
    except OSError as error:
        raise ConfigError(
            f"cannot find the address of {host!r}: {error.strerror}", field="listen"
        ) from None
    until = time.monotonic() + RELEASE_S
    while True:
        try:
            return _bind(family, address)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or time.monotonic() > until:
                raise ConfigError(
                    f"cannot listen on {listen}: {error.strerror}; choose another port, or end"
                    " what listens there",
                    field="listen",
                ) from None
            time.sleep(0.05)


def _bind(family: socket.AddressFamily, address: tuple[str, int]) -> socket.socket:
    port = socket.socket(family, socket.SOCK_STREAM)
    try:
        port.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            port.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        port.bind(address)
        port.listen(BACKLOG)
    except OSError:
        port.close()
        raise
    return port


def _address(host: str, number: int) -> tuple[socket.AddressFamily, tuple[str, int]]:
    """Return the numeric address of a host.

    Raises
    ------
    OSError : there is none.
    """
    if host == "*":
        has_both = socket.has_dualstack_ipv6()
        return (socket.AF_INET6, ("::", number)) if has_both else (socket.AF_INET, ("", number))
    family, _, _, _, address = socket.getaddrinfo(
        host.strip("[]"), number, type=socket.SOCK_STREAM
    )[0]
    return family, (str(address[0]), number)
