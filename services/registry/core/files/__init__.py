"""What may be wrong with an announcement and its files."""
