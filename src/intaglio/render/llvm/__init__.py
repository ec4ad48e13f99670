"""LLVM IR text."""

from .kernel import render as render
