"""Moves by MPI messages."""
