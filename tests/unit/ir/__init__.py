"""Tests of intaglio.ir."""
