"""Real models, written with the public API."""
