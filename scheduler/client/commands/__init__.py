"""The commands of `reshape` about jobs, and those that start and stop the service."""
