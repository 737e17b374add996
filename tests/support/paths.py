"""Paths of the repository, its examples, and test data of other projects."""

from __future__ import annotations

from pathlib import Path

SUPPORT = Path(__file__).parent
ROOT = SUPPORT.parents[1]
EXAMPLES = ROOT / "examples"
BENCHMARKS = ROOT / "benchmarks"
#: 400 synthetic jobs with all irregularities of traces; see make_small_trace.py.
SMALL_TRACE = SUPPORT / "small.swf"
SYNTHETIC_TRACE = EXAMPLES / "traces" / "synthetic.swf"
#: Archive traces and golden schedules beside the checkout; tests are skipped without them.
SHARED = ROOT.parent / "shared"
