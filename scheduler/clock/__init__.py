"""Driving a site by a virtual clock: an agenda of future events and the loop that empties it."""
