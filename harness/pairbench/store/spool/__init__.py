"""Results that a store did not take: kept in a folder of the user's, and published later."""
