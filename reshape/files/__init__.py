"""Files that survive a crash, and folders that only their user may enter."""
