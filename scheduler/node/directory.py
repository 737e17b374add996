"""The service's directory: what lies where, and who may be there only once.

    server.json   endpoint, process and start of the service (removed when it ends)
    secret        known to the service and its agents
    journal.db    the event stream and what belongs to it (SQLite)
    lock          held by the service; agent-NODE.lock likewise by each agent
    *.log         what service and agents write

The directory belongs to its user alone (0700). The ZeroMQ socket lies in it too, unless its path
would be longer than a socket's may be (107 bytes); then it lies in a folder of the user's under the
system's temporary directory.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from reshape.errors import ReshapeError

_LONGEST_SOCKET_PATH = 100


class ServiceDirectory:
    """Paths and locks of one service.

    Raises
    ------
    ReshapeError : the directory cannot be made, or belongs to another user.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(os.path.abspath(Path(path).expanduser()))
        self._digest = hashlib.sha256(os.fsencode(self.path.resolve())).hexdigest()[:10]

    def create(self) -> None:
        """Make the directory, for its user only."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            if self.path.stat().st_uid != os.getuid():
                raise ReshapeError(f"{self.path} belongs to another user: choose another --dir")
            self.path.chmod(0o700)
            self._socket.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._make_secret()
        except OSError as error:
            raise ReshapeError(f"cannot use the directory {self.path}: {error.strerror}") from None

    def _make_secret(self) -> None:
        secret = self.path / "secret"
        if secret.exists():
            return
        handle = os.open(secret, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(handle, "w") as file:
                file.write(secrets.token_hex(16))
        except OSError:  # the disk is full: an empty secret is none
            secret.unlink()
            raise

    @property
    def _socket(self) -> Path:
        here = self.path / "socket"
        if len(os.fsencode(here)) <= _LONGEST_SOCKET_PATH:
            return here
        return Path(tempfile.gettempdir()) / f"reshape-{os.getuid()}-{self._digest}" / "socket"

    @property
    def endpoint(self) -> str:
        """ZeroMQ address of the service."""
        return f"ipc://{self._socket}"

    @property
    def server_file(self) -> Path:
        """Where clients look for the service."""
        return self.path / "server.json"

    @property
    def journal(self) -> Path:
        """The journal's database."""
        return self.path / "journal.db"

    def log(self, name: str) -> Path:
        """Where the service or an agent writes its log."""
        return self.path / f"{name}.log"

    def shm(self, job: int) -> Path:
        """Give the shared-memory folder of a job, on its node."""
        return Path("/dev/shm") / f"reshape-{os.getuid()}-{self._digest}-{job}"

    def read_secret(self) -> str:
        """Give the secret that agents show to the service."""
        return (self.path / "secret").read_text()

    @contextmanager
    def lock(self) -> Iterator[bool]:
        """Hold the service's lock; False if another service holds it."""
        with self._hold("lock") as locked:
            yield locked

    @contextmanager
    def agent_lock(self, node: str) -> Iterator[bool]:
        """Hold the lock of the agent of a node; False if there is one already."""
        with self._hold(f"agent-{node}.lock") as locked:
            yield locked

    @contextmanager
    def _hold(self, name: str) -> Iterator[bool]:
        with (self.path / name).open("a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
                return
            yield True
