"""Answers that only read: the processes that compute them, and their questions."""
