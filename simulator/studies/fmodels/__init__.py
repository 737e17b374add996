"""Prediction errors: figures 5.1 to 5.9 of GUIM."""
