"""The rules of the house as pure functions: source in, sentences out. `tests/test_architecture.py` applies them."""
