"""Queue orders: rules that sort the queue."""
