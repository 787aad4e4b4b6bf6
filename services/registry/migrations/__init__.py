"""How the registry's schema came to be, step by step; applied at every start."""
