"""The keys with which clients may reach a service over TCP: files in DIR/access.

server.json    endpoint and key pair of the service
keys.json      the granted public keys, each with role and user; revoking removes an entry
admin.json     access file of an administrator
agent.json     access file of agents
job.json       access file of the processes of jobs
"""

from __future__ import annotations

import fcntl
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec
import zmq

from reshape.errors import ReshapeError
from reshape.wire.access import AccessFile, AccessRole, key_fault, read_private, write_private

log = logging.getLogger(__name__)

#: Access files that the service itself writes, with their roles.
OWN_FILES: Mapping[str, AccessRole] = {
    "admin": "administrator",
    "agent": "agent",
    "job": "job",
}


class ServerKeys(msgspec.Struct, frozen=True):
    """Endpoint and key pair of a service that listens on TCP."""

    endpoint: str
    public_key: str
    secret_key: str

    def __repr__(self) -> str:
        """Describe the keys without the secret."""
        return f"ServerKeys({self.endpoint})"


class GrantedKey(msgspec.Struct, frozen=True):
    """A public key with what it grants; times are Unix seconds."""

    number: int
    public_key: str
    role: AccessRole
    user: str
    created_at: float
    expires_at: float | None = None


class AccessKeys:
    """The keys of one service.

    Parameters
    ----------
    directory : directory of the service.
    owner : name of the user who owns the service.
    """

    def __init__(self, directory: Path, owner: str) -> None:
        self.folder = directory / "access"
        self._owner = owner
        self._list = self.folder / "keys.json"
        self._server = self.folder / "server.json"
        self._read_state: tuple[int, int, int] | None = None
        self._granted: dict[str, GrantedKey] = {}
        self._fault = ""  # why the list could not be read the last time

    def prepare(self, endpoint: str) -> ServerKeys:
        """Create the keys of the service and its own access files, or update their endpoint.

        Raises
        ------
        ReshapeError : a file cannot be written, or an existing one is damaged or open to others.
        """
        self.folder.mkdir(mode=0o700, exist_ok=True)
        if self._server.exists():
            keys = read_private(self._server, ServerKeys)
            if fault := key_fault(keys.public_key, keys.secret_key):
                raise ReshapeError(
                    f"{self._server}: {fault}; remove {self.folder} to make new keys, and create"
                    " the access files of users again"
                )
            keys = msgspec.structs.replace(keys, endpoint=endpoint)
        else:
            public, secret = zmq.curve_keypair()
            keys = ServerKeys(endpoint, public.decode(), secret.decode())
        write_private(self._server, keys)
        for name, role in OWN_FILES.items():
            self._prepare_file(self.folder / f"{name}.json", role, keys)
        return keys

    def _prepare_file(self, path: Path, role: AccessRole, server: ServerKeys) -> None:
        if path.exists():
            access = read_private(path, AccessFile)
            if self.grant_of(access.public_key) is not None:
                fresh = msgspec.structs.replace(
                    access, endpoint=server.endpoint, server_key=server.public_key
                )
                write_private(path, fresh)
                return
        self.create(path, role, self._owner, replace=True)

    def create(
        self,
        path: Path,
        role: AccessRole,
        user: str,
        expires_at: float | None = None,
        *,
        replace: bool = False,
    ) -> GrantedKey:
        """Grant a new key and write its access file.

        Raises
        ------
        ReshapeError : the service has never listened on TCP, or a file cannot be written.
        """
        if not self._server.exists():
            raise ReshapeError(
                f"the service of {self.folder.parent} has no keys yet: start it once with"
                " 'reshape serve --listen HOST:PORT'"
            )
        server = read_private(self._server, ServerKeys)
        public, secret = (key.decode() for key in zmq.curve_keypair())
        access = AccessFile(
            endpoint=server.endpoint,
            server_key=server.public_key,
            public_key=public,
            secret_key=secret,
            role=role,
            user=user,
            expires_at=expires_at,
        )
        write_private(path, access, replace=replace)
        with self._changing() as granted:
            number = 1 + max((key.number for key in granted), default=0)
            key = GrantedKey(number, public, role, user, time.time(), expires_at)
            granted.append(key)
        return key

    def revoke(self, is_revoked: Callable[[GrantedKey], bool]) -> list[GrantedKey]:
        """Remove keys from the list, at once for a running service; return them."""
        with self._changing() as granted:
            revoked = [key for key in granted if is_revoked(key)]
            granted[:] = [key for key in granted if not is_revoked(key)]
        return revoked

    def granted(self) -> list[GrantedKey]:
        """Read the list of keys, by number.

        Raises
        ------
        ReshapeError : the list cannot be read.
        """
        if not self._list.exists():
            return []
        return sorted(read_private(self._list, list[GrantedKey]), key=lambda key: key.number)

    def grant_of(self, public_key: str) -> GrantedKey | None:
        """Return what a key grants now, None if nothing.

        The list is read again when it has changed. A list that cannot be read grants nothing.
        """
        try:
            status = os.stat(self._list)
            state = (status.st_mtime_ns, status.st_ino, status.st_size)
        except OSError:
            return None
        if state != self._read_state:
            try:
                self._granted = {key.public_key: key for key in self.granted()}
                self._read_state = state
                self._fault = ""
            except ReshapeError as error:  # it may be readable again without a change
                if str(error) != self._fault:
                    log.error("no key is accepted: %s", error)
                self._granted, self._fault = {}, str(error)
        key = self._granted.get(public_key)
        if key is not None and key.expires_at is not None and key.expires_at <= time.time():
            return None
        return key

    @property
    def is_readable(self) -> bool:
        """Whether the list could be read the last time, so that a missing key was revoked."""
        return not self._fault

    def fault_of(self, public_key: str) -> str:
        """Say why a key grants nothing."""
        key = self._granted.get(public_key)
        if self._fault:
            return "the list of keys cannot be read"
        if key is None:
            return f"the key {public_key} was never granted, or is revoked"
        return f"key {key.number}, of {key.user}, has expired"

    @contextmanager
    def _changing(self) -> Iterator[list[GrantedKey]]:
        """Hold the lock of the list, for a change that is written at the end of the block."""
        if not self.folder.is_dir():
            raise ReshapeError(f"there are no access files in {self.folder.parent}")
        with (self.folder / "lock").open("a") as file:
            os.fchmod(file.fileno(), 0o600)
            fcntl.flock(file, fcntl.LOCK_EX)
            granted = self.granted()
            yield granted
            write_private(self._list, granted)
