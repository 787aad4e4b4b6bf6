"""The base model on this machine: fetched, checked, converted."""
