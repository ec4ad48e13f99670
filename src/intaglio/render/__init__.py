"""Linear code as source text."""
