"""Traces in the Standard Workload Format."""
