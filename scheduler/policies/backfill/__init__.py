"""Backfilling: which queued jobs start now."""
