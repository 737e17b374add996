"""Copies of products of runs between local arrays and messages. Without MPI."""
