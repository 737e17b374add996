"""Nodes keep their processor numbers when they leave and rejoin."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from scheduler.model.machine import Machine
from scheduler.model.procset import ProcSet


class Chosen(NamedTuple):
    """Selection of certain processors."""

    these: ProcSet

    def select(self, free: ProcSet, processors: int) -> ProcSet:
        return self.these


def test_names_of_nodes() -> None:
    machine = Machine([("a", 4), ("b", 2), ("c", 3)])
    assert machine.by_node(ProcSet.parse("2-4 7")) == {
        "a": ProcSet.span(2, 2),
        "b": ProcSet.span(4, 1),
        "c": ProcSet.span(7, 1),
    }
    assert machine.by_node(ProcSet.parse("0-8")) == {
        "a": ProcSet.span(0, 4),
        "b": ProcSet.span(4, 2),
        "c": ProcSet.span(6, 3),
    }
    assert machine.by_node(ProcSet()) == {}


def test_a_node_that_comes_back_larger_or_smaller() -> None:
    machine = Machine([("a", 2), ("b", 2)])
    assert machine.allocate(Chosen(ProcSet.parse("0 3")), 2) == ProcSet.parse("0 3")
    machine.join("a", 4)  # larger, while it is up
    assert str(machine.free) == "1-2 4-5"
    assert machine.installed == machine.processors == 6
    assert machine.by_node(ProcSet.parse("1 4")) == {"a": ProcSet.parse("1 4")}
    machine.join("a", 1)  # smaller: 0 is held, the others go
    assert str(machine.free) == "2"
    machine.release(ProcSet.parse("0"))
    assert str(machine.free) == "0 2"
    assert machine.lose("b") == ProcSet.parse("2-3")
    assert machine.lose("b") == machine.lose("nobody") == ProcSet()
    assert (machine.processors, machine.installed, machine.free_count) == (1, 3, 1)
    machine.join("b", 2)  # 3 is still held
    assert str(machine.free) == "0 2"
    machine.release(ProcSet.parse("3"))
    assert str(machine.free) == "0 2-3"


def test_a_node_without_processors() -> None:
    with pytest.raises(ValueError, match="node a must offer at least 1 processor, got 0"):
        Machine([("a", 0)])
