"""Resizing policies: PRIO and the interface for others."""
