"""Roles of which only one process may act: who does, until when, and how its writing is told from a predecessor's."""
