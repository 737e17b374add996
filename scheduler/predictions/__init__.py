"""Predictions of run times."""
