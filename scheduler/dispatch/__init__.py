"""Several centres: who asks them, how a job is assigned to one of them, and what they answer."""
