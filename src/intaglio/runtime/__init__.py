"""Bytes and launches: allocation, compiling source text, running tables of kernels. Knows no IR."""
