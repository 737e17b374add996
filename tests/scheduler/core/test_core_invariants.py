"""The invariants of a core hold after any events: failures, repetitions and impossible ones too."""

from __future__ import annotations

from core_life import AnyLife
from example_counts import examples

TestAnyLife = AnyLife.TestCase
TestAnyLife.settings = examples(250, stateful_step_count=40)
