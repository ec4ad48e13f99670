"""From programs to results: schedule, lower, render, compile, launch."""
