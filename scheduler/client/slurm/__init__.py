"""Slurm's commands over this service, for programs that call them (docs/coming-from-slurm.md)."""
