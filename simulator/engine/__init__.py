"""Simulated jobs: how they run, resize and end."""
