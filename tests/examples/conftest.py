"""Lets these tests use the stand-in for the service that the runtime's tests have."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "reshape"))
