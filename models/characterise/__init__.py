"""Properties of a trace: the spacing of its requests, the variation of its load, and its predictability."""
