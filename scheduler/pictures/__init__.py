"""Shared style of all pictures."""
