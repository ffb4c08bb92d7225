"""Judging: current runs against reference runs, series by series."""
