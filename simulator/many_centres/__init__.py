"""Simulations of several centres: runs, their results, and centralised models for comparison."""
