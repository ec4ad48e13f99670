"""What every layer may use: dtypes, errors, settings, targets, counters."""
