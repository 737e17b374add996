"""User-defined scheduling passes within another one, and their names in reasons."""

from __future__ import annotations

from typing import Any


class Wrapper:
    """Scheduling pass as a policy that calls another one and has its name in reasons.

    Parameters
    ----------
    policy : the other policy.
    """

    def __init__(self, policy: Any) -> None:
        self.policy = policy


def title(policy: object) -> str:
    """Name of a policy in reasons."""
    return type(policy.policy if isinstance(policy, Wrapper) else policy).__name__
