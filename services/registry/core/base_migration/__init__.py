"""Base models, and the steps of a move from one to another."""
