"""Reverse mode: the cotangents of a graph, as a graph."""
