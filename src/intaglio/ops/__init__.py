"""Every op of the IR, by family."""
