"""Files of pytest-benchmark, read and written."""
