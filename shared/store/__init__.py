"""Where adapter files live between the registry that verified them and the replicas that apply them."""
