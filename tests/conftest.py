"""Settings for all tests."""

from __future__ import annotations

from hypothesis import settings

# The time one example takes says nothing on a machine shared with MPI ranks.
settings.register_profile("reshape", deadline=None)
settings.load_profile("reshape")
