"""Simulations of recorded live runs."""
