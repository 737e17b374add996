"""Processor selections: the choice of which free processors a group gets."""
