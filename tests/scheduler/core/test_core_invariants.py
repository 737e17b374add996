"""The invariants of a core hold after any events: failures, repetitions and impossible ones too."""

from __future__ import annotations

from core_life import AnyLife
from hypothesis import settings

TestAnyLife = AnyLife.TestCase
TestAnyLife.settings = settings(max_examples=250, stateful_step_count=40)
