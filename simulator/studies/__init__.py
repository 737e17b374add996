"""The studies that ship with the package: their runs, claims and reports."""
