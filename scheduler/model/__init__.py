"""Jobs, events, orders, processors and machines: the data that decisions are about."""
