"""Pure functions from measurements to records, comparisons and histories: no I/O, no torch."""
