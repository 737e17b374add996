"""The scheduler service and the decision core."""

from scheduler import compiled as compiled  # before any module that may be compiled
