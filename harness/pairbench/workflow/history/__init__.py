"""One series over its runs: found by its name, read, accepted."""
