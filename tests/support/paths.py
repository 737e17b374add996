"""Where the tests find the repository, its examples, and the data that other projects made."""

from __future__ import annotations

from pathlib import Path

SUPPORT = Path(__file__).parent
ROOT = SUPPORT.parents[1]
EXAMPLES = ROOT / "examples"
BENCHMARKS = ROOT / "benchmarks"
#: 400 synthetic jobs with every irregularity that traces have; see make_small_trace.py.
SMALL_TRACE = SUPPORT / "small.swf"
SYNTHETIC_TRACE = EXAMPLES / "traces" / "synthetic.swf"
#: Archive traces and golden schedules beside the checkout; tests that need them skip without them.
SHARED = ROOT.parent / "shared"
