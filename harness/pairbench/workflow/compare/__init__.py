"""Comparisons of stored runs: what two sides are, and what their runs say."""
