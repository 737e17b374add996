"""Numbers of things as people write them."""

from __future__ import annotations


def grouped(number: int) -> str:
    """``12 345``: thousands set apart."""
    return f"{number:,}".replace(",", " ")


def noun(number: int, thing: str) -> str:
    """``job`` for one, ``jobs`` for any other number."""
    return thing if number == 1 else f"{thing}s"


def counted(number: int, thing: str) -> str:
    """``1 job``, ``0 jobs``, ``12 345 jobs``."""
    return f"{grouped(number)} {noun(number, thing)}"
