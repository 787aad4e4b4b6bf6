"""One module a step; `down_revision` chains them."""
