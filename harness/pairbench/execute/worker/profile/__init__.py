"""Launches, memory and operators of one call. Never in a process that times."""
