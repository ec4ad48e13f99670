"""Timings, reported and not gated."""
