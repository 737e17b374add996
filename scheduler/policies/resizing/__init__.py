"""Resizing policies: those of PRIO 3.3, and the interface for user-defined ones."""
