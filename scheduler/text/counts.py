"""Counts as text: grouped digits, and the singular or plural of a noun."""

from __future__ import annotations

from collections.abc import Sequence


def grouped(number: int) -> str:
    """Write a number with spaces between thousands, such as ``12 345``."""
    return f"{number:,}".replace(",", " ")


def noun(number: int, thing: str) -> str:
    """Select singular or plural: ``job`` for 1, ``jobs`` for any other number."""
    return thing if number == 1 else f"{thing}s"


def counted(number: int, thing: str) -> str:
    """Write a number with its noun: ``1 job``, ``0 jobs``, ``12 345 jobs``."""
    return f"{grouped(number)} {noun(number, thing)}"


def listed(thing: str, numbers: Sequence[int]) -> str:
    """Write numbers with their noun: ``job 3``, ``jobs 3, 5``."""
    return f"{noun(len(numbers), thing)} {', '.join(map(str, numbers))}"
