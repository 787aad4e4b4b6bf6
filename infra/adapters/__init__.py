"""Adapters made here: canaries in closed form, and the three trained demo voices."""
