"""Rulesets, one topic a file."""
