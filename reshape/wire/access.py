"""Access files: what a client needs to reach a service over TCP.

An access file is JSON with mode 0600. It holds the endpoint of the service, the public key of the
service, and a key pair of the client (CURVE keys in Z85, 40 characters). The service derives role
and user of a connection from the client's key; the fields `role` and `user` of the file only
describe the key.
"""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path
from typing import Literal, TypeAlias, TypeVar

import msgspec

from reshape.errors import ReshapeError
from reshape.files.durable_files import write_durably

_T = TypeVar("_T")
AccessRole: TypeAlias = Literal["administrator", "user", "agent", "job"]


class AccessFile(msgspec.Struct, frozen=True, kw_only=True):
    """The content of an access file.

    Attributes
    ----------
    endpoint : ZeroMQ endpoint of the service, ``tcp://HOST:PORT``.
    server_key : public key of the service.
    public_key, secret_key : key pair of the client.
    role, user : what the service grants to the key.
    expires_at : Unix seconds after which the service refuses the key; None: never.
    """

    endpoint: str
    server_key: str
    public_key: str
    secret_key: str
    role: AccessRole
    user: str
    expires_at: float | None = None

    def __repr__(self) -> str:
        """Describe the file without its secret."""
        return f"AccessFile({self.endpoint}, {self.role}, user={self.user!r})"


def read_access(path: Path) -> AccessFile:
    """Read an access file.

    Raises
    ------
    ReshapeError : it cannot be read, other users have access to it, its keys are damaged, or it
        has expired.
    """
    access = read_private(path, AccessFile)
    if fault := key_fault(access.public_key, access.secret_key):
        raise ReshapeError(f"{path}: {fault}; create the file again with 'reshape access create'")
    if access.expires_at is not None and access.expires_at <= time.time():
        raise ReshapeError(
            f"the access file {path} has expired; create a new one with 'reshape access create'"
        )
    return access


def key_fault(public_key: str, secret_key: str) -> str:
    """Describe what is wrong with a key pair; empty if nothing is."""
    import zmq  # late: messages contain access files and need no sockets

    try:
        derived = zmq.curve_public(secret_key.encode())
    except (ValueError, zmq.ZMQError):
        return "the secret key is not a CURVE key"
    return "" if derived.decode() == public_key else "the public key does not match the secret key"


def read_private(path: Path, kind: type[_T]) -> _T:
    """Read a JSON file that only its user may access.

    Raises
    ------
    ReshapeError : it cannot be read, belongs to another user, is open to other users, or is not of
        this kind.
    """
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            data = file.read()
    except OSError as error:
        raise ReshapeError(f"cannot read {path}: {error.strerror}") from None
    if status.st_uid not in (os.geteuid(), 0):
        raise ReshapeError(f"{path} belongs to user {status.st_uid}: use a file of your own")
    if status.st_mode & 0o077:
        mode = stat.S_IMODE(status.st_mode)
        raise ReshapeError(
            f"{path} has mode {mode:04o}, so that other users may read its secret: 'chmod 600"
            f" {path}', and replace the key if others had access"
        )
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ReshapeError(f"{path} is damaged: {error}") from None


def write_private(path: Path, value: object, *, replace: bool = True) -> None:
    """Write a JSON file that only its user may access, in one step.

    Parameters
    ----------
    replace : whether an existing file is replaced.

    Raises
    ------
    ReshapeError : the file cannot be written, or exists and must not be replaced.
    """
    data = msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"
    try:
        write_durably(path, data, replace=replace)
    except FileExistsError:
        raise ReshapeError(f"{path} exists: choose another file, or remove it") from None
    except OSError as error:
        raise ReshapeError(f"cannot write {path}: {error.strerror}") from None
