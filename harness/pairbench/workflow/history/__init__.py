"""From the name of a series to its records."""
