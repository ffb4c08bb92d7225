"""A run from its plan to the store."""
