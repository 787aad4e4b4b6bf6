"""Official clients, unmodified, in processes of their own: what they are asked, and what users see of the answers."""
