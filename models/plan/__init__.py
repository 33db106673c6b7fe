"""How many instances to run, of what, where: the hourly programme and its re-check."""
