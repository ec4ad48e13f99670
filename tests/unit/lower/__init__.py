"""Unit tests of lowering."""
