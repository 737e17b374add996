"""Processor selection: which of the free processors a group gets."""
