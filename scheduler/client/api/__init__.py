"""The Python client of a service, which the commands use as well."""
