"""The controller: one loop that takes events in, makes them durable, and gives commands out."""
