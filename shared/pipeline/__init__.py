"""What a fine-tuning pipeline holds in hand: announce an adapter, send its weights, hear what became of it."""
