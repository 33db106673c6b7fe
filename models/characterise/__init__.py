"""What a trace is like: how its requests are spaced, how its load moves, and how far it can be foreseen."""
