"""Tests of Intaglio: one folder per kind of evidence."""
