"""Predictions of run times over traces: accuracy, and predictors that the trace itself gives."""
