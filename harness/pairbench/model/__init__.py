"""Frozen values that every stage shares: no torch, no parquet, no I/O."""
