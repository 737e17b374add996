"""The content of an access file, with which a client reaches a service over TCP."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

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
