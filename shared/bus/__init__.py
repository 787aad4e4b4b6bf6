"""How services speak: one port, two implementations with one test suite."""
