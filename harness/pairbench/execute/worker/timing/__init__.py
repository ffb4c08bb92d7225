"""Timing: clocks, blocks, the stopping rule and telemetry."""
