"""Features that stand on the core, a room each: values, logic and words. None imports another, but bisect and backfill use ab."""
