"""Baseline and variant in lockstep, module by module."""
