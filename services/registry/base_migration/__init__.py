"""Base models, and the move of all adapters from one to another."""
