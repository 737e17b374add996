"""Registered data of an application and the shared-memory segments that hold it."""
