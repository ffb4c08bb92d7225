"""Features on top of the core, a room each with its values, logic and words. None imports another, but bisect and backfill use ab."""
