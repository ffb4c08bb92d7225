"""Which unit goes to which host, and which the store has: decisions of a fleet as pure functions."""
