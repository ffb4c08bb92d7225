"""What looks into one call, or into the machine, instead of comparing."""
