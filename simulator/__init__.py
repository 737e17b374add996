"""The trace-driven simulator."""

from scheduler import compiled as compiled  # before any module that may be compiled
