"""Who goes first, on which option, and how many units a pool should have."""
