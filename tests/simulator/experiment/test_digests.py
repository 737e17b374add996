"""What determines the results of an experiment changes its digest, and nothing else does."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from small_experiments import CENTRES, COLUMNS, TREE, trace_text

from scheduler.policies.api import QueueOrder
from scheduler.policies.queue_orders.basic import Lxwf, Sjf
from scheduler.policies.scenarios import scenario
from simulator import Experiment, Jobs
from simulator.experiment.digests import digest

ORDER = """
import msgspec
from scheduler.policies.api import QueueOrder

def size_of(job):
    return job.processors * FACTOR

FACTOR = 1

class Base:
    def key(self, job, now):
        return size_of(job), job.queued_at

class Mine(Base, QueueOrder, msgspec.Struct, frozen=True):
    ages = False
    parameter: int = 0
"""


def order(text: str = ORDER, name: str = "Mine", **parameters: int) -> Any:
    """Order of a class that a notebook defines."""
    module = ModuleType("notebook")
    exec(compile(text, "notebook", "exec", dont_inherit=True), vars(module))
    return getattr(module, name)(**parameters)


def of_order(*arguments: str, **parameters: int) -> str:
    return digest(Experiment(COLUMNS, queue_order=order(*arguments, **parameters)))


def test_the_same_class_defined_again() -> None:
    assert of_order() == of_order() == of_order("# a comment\n\n" + ORDER)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("return size_of(job), job.queued_at", "return -size_of(job), job.queued_at"),
        ("return job.processors * FACTOR", "return job.estimate_s * FACTOR"),
        ("FACTOR = 1", "FACTOR = 2"),
        ("ages = False", "ages = True"),
    ],
    ids=["method of a base", "function", "constant", "class variable"],
)
def test_changed_code_changes_the_digest(before: str, after: str) -> None:
    assert before in ORDER
    assert of_order(ORDER.replace(before, after)) != of_order()


def test_parameters_count() -> None:
    assert of_order(parameter=1) != of_order()


def test_fields_and_classes_of_policies_count() -> None:
    experiments = [
        Experiment(COLUMNS),
        Experiment(COLUMNS, processors=16),
        Experiment(COLUMNS, tau_s=1.0),
        Experiment(COLUMNS, queue_order="sjf"),
        Experiment(COLUMNS, queue_order=Sjf()),
        Experiment(COLUMNS, queue_order=Lxwf()),
        Experiment(COLUMNS, scenario=scenario("easy", {"order": "sjf"})),
        Experiment(COLUMNS, scenario=scenario("easy", {"order": "lxwf"})),
        Experiment(COLUMNS, scenario=scenario("easy", {"backfill_order": "sjf"})),
        Experiment(COLUMNS, machine=TREE),
        Experiment(COLUMNS, machine=TREE, select="tree"),
        Experiment(COLUMNS, machine=CENTRES),
        Experiment(COLUMNS, machine=CENTRES, assign="origin"),
        Experiment(COLUMNS | {"run_s": [5] * 12}),
        Experiment(Jobs(COLUMNS).first(5)),
        Experiment(Jobs.drawn("lublin", jobs=5)),
        Experiment(Jobs.drawn("lublin", jobs=5), seed=1),
        Experiment(Jobs.drawn("lublin", jobs=6)),
    ]
    assert len({digest(each) for each in experiments}) == len(experiments)
    again = Experiment({name: list(values) for name, values in COLUMNS.items()})
    assert digest(again) == digest(experiments[0])


def test_contents_of_files_count(tmp_path: Path) -> None:
    trace, machine = tmp_path / "t.swf", tmp_path / "m.yaml"
    trace.write_text(trace_text())
    machine.write_text("nodes: 8\n")
    digests = [digest(Experiment(trace, machine=machine))]
    machine.write_text("nodes: 9\n")
    digests.append(digest(Experiment(trace, machine=machine)))
    trace.write_text(trace_text(processors=9))
    digests.append(digest(Experiment(trace, machine=machine)))
    assert len(set(digests)) == 3
    assert digest(Experiment(trace, machine=machine)) == digests[2]


@pytest.mark.parametrize(
    "field",
    [
        "queue_order='orders:Mine'",
        "machine={'centres': [{'name': 'a', 'processors': 8, 'set': {'order': 'orders:Mine'}}]}",
    ],
)
def test_a_class_that_is_named_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, field: str
) -> None:
    """In two programs, between which the file of the class changes."""
    program = (
        "import simulator as sim; from simulator.experiment.digests import digest\n"
        f"print(digest(sim.Experiment({COLUMNS!r}, {field})))"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    told = []
    for text in (ORDER, ORDER, ORDER.replace("FACTOR = 1", "FACTOR = 3")):
        (tmp_path / "orders.py").write_text(text)
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True
        )
        told.append(done.stdout)
    assert told[0] == told[1] != told[2]


def test_objects_that_refer_to_each_other() -> None:
    @dataclass(eq=False)
    class Ring(QueueOrder):
        other: object = None
        ages = False

        def key(self, job: object, now: float) -> float:
            return 0.0

    def ring() -> Ring:
        first, second = Ring(), Ring()
        first.other, second.other = second, first
        return first

    assert digest(Experiment(COLUMNS, queue_order=ring())) == digest(
        Experiment(COLUMNS, queue_order=ring())
    )
    nested: Any = []
    for _ in range(100_000):
        nested = [nested]
    deep = Experiment(COLUMNS, queue_order=Ring(nested))
    assert digest(deep) != digest(deep), "what cannot be described is computed again"


def test_plain_structs_of_equal_fields_differ() -> None:
    first, second = (order(ORDER.replace("Mine", name), name) for name in ("First", "Second"))
    made = [digest(Experiment(COLUMNS, queue_order=kind)) for kind in (first, second)]
    assert made[0] != made[1]


HELD = """
import functools
import operator
from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple
from scheduler.policies.api import QueueOrder

LIMIT = 1

def weighed(by, weight, job):
    return by(job) * weight + LIMIT

class Weights(NamedTuple):
    first: int = 2

    def of(self, job):
        return job.processors * self.first

class Slots:
    __slots__ = ("first",)

    def __init__(self, first):
        self.first = first

    def __repr__(self):
        return "Slots"

    def of(self, job):
        return job.processors * self.first

@functools.lru_cache
def cached(processors):
    return -processors

def marked(job):
    return marked.sign * job.processors

marked.sign = 1
HELD = {held}

@dataclass
class Mine(QueueOrder):
    ages = False
    held: object = field(default_factory=lambda: HELD)

    def key(self, job, now):
        return self.held(job), job.queued_at
"""
PARTIAL = "functools.partial(weighed, operator.attrgetter('processors'), 3)"


@pytest.mark.parametrize(
    ("held", "before", "after"),
    [
        (PARTIAL, "LIMIT = 1", "LIMIT = 2"),
        (PARTIAL, ", 3)", ", 4)"),
        (PARTIAL, "'processors'", "'id'"),
        ("functools.partial(weighed, operator.attrgetter('processors'), weight=3)", "=3)", "=4)"),
        (PARTIAL, "by(job) *", "by(job) /"),
        ("Weights().of", "first: int = 2", "first: int = 3"),
        ("Weights().of", "job.processors *", "-job.processors *"),
        ("Slots(2).of", "Slots(2)", "Slots(3)"),
        ("deque([cached], 5).__getitem__", "-processors", "+processors"),
        ("deque([cached], 5).__getitem__", "5)", "6)"),
        ("marked", "marked.sign = 1", "marked.sign = -1"),
    ],
)  # fmt: skip
def test_what_an_object_holds_changes_the_digest(held: str, before: str, after: str) -> None:
    text = HELD.replace("{held}", held)
    assert before in text
    assert of_order(text) == of_order(text)
    assert of_order(text) != of_order(text.replace(before, after))


def test_values_that_are_looked_up_in_a_module_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program may change them after the import, so that the file is not enough."""
    helper = ModuleType("helper")
    monkeypatch.setitem(sys.modules, "helper", helper)
    text = "import helper\n" + ORDER.replace("* FACTOR", "* helper.FACTOR")
    made = []
    for factor in (1, 1, 2):
        vars(helper)["FACTOR"] = factor
        made.append(of_order(text))
    assert made[0] == made[1] != made[2]


def test_an_object_that_cannot_be_described_is_computed_again() -> None:
    text = ORDER.replace("FACTOR = 1", "FACTOR = (n for n in [1])").replace(
        "* FACTOR", "* next(FACTOR)"
    )
    assert of_order(text) != of_order(text)


def test_the_contents_of_a_path_count(tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    text = ORDER.replace("FACTOR = 1", f"from pathlib import Path\nFACTOR = Path({str(table)!r})")
    made = []
    for content in ("1", "1", "2"):
        table.write_text(content)
        made.append(of_order(text))
    assert made[0] == made[1] != made[2]
