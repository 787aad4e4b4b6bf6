"""A PostgreSQL of one's own, for tests and benchmarks: from a wheel, in a folder, gone with whoever started it."""
