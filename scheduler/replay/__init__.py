"""Replay: the journal of a live run read again, and its events handed to a decision core again."""
