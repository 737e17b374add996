"""Forecasts: when queued jobs and jobs that are not submitted yet will start and end."""
