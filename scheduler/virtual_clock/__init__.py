"""Driving a core by a virtual clock."""
