"""What has changed since a commit, so that a run need measure no more than that."""
