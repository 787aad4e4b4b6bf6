"""Which version an alias may mean, for whom, and when it goes back."""
