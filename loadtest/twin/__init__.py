"""A fleet in virtual time on the services' own cores: what would happen if."""
