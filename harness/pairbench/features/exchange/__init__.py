"""Other tools' measurements: values, pairing, and the way into a store."""
