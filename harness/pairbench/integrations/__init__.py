"""The way to other tools: their results come in, ours go out, and pytest runs our operators."""
