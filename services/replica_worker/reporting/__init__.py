"""What the fleet is told about this replica: its figures and which adapters it holds where."""
