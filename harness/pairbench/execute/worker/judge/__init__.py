"""Judging in a process of its own, in which no variant is ever called; on a GPU, in `try` and in `ab` the worker judges itself."""
