"""What suites declare, and what the device and the software are."""
