"""Results of asv, read into values."""
