"""Deployment: what aliases mean, residency before a move, splits, and guards that take a version back."""
