"""What carries commands out: one package a place."""
