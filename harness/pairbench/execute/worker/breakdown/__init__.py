"""Where one call spends its time, read from the profiler's trace."""
