"""How long things take on a real replica, measured by asking it, for the twin."""
