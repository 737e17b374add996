"""Bounds that a program requests on its size, and the answer of the service."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass
class SizeRequest:
    """A request of a program; `reshape.app.Application.request` returns it.

    Attributes
    ----------
    minimum, maximum : bounds on the number of processes; None: no bound.
    state : "pending" until the service has answered; "accepted": the job is resized within the
        bounds from then on, to a size between them when there are processors; or "declined".
    why : why it is declined.
    """

    minimum: int | None
    maximum: int | None
    state: Literal["pending", "accepted", "declined"] = "pending"
    why: str = ""

    def answer(self, declined: str) -> None:
        """Note the answer: why the request is declined, empty if it is accepted."""
        self.state, self.why = "declined" if declined else "accepted", declined
