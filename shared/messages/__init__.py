"""What services say to each other: frozen, keyword-only msgspec structs and nothing else.

Fields are only ever added, with a default; `tests/contract/` holds a golden copy of every schema.
"""
