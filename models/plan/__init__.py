"""How many instances to run, of which option, in which region: the hourly models and their re-check."""
