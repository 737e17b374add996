"""The address at which a job accepts a group."""

from __future__ import annotations

from typing import NamedTuple


class Address(NamedTuple):
    """Where the job accepts a group: its MPI port, and the loop of the program that it is in.

    The service passes its text on as the name of a port. A group that joins runs through the
    earlier loops of the program before it connects.
    """

    port: str
    loop: int = 0

    def __str__(self) -> str:
        """Text from which `parse` makes an equal address."""
        return f"{self.port} loop={self.loop}" if self.loop else self.port

    @staticmethod
    def parse(text: str) -> Address:
        """Read the text of an address."""
        port, separator, loop = text.rpartition(" loop=")
        return Address(port, int(loop)) if separator else Address(text)
