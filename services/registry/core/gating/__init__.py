"""Whom to ask for an evaluation, how cases are scored, and what passes."""
