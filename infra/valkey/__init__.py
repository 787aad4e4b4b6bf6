"""Valkey, for limits that gateways hold together: in bounded memory, on no disk, and nothing in it is precious."""
