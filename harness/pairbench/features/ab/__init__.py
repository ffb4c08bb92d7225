"""Two commits measured interleaved on one device."""
