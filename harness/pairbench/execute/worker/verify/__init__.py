"""Verification: outputs against the baseline and against the oracle."""
