"""Usage: one row a request, its sums, and who is busy."""
