"""Where and how services speak: every subject, stream and permission of the system derives from `catalog`."""
