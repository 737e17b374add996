"""The studies that come with the package: what their runs compute and what they report."""
