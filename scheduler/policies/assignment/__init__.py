"""Task assignment: to which of several sites a job is submitted."""
