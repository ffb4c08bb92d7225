"""Verifying, timing and profiling. The only place that imports torch, and only in worker processes."""
