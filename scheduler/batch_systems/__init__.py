"""Batch systems such as Slurm, which grant nodes for a limited time."""
