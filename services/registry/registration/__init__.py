"""Registration: from an announcement to a verified adapter, and what keeps one from it."""
