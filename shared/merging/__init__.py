"""An adapter worked into its base's weights: the same numbers wherever they are computed."""
