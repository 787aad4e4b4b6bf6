"""What the control plane and operators want of this replica, and how it comes about."""
