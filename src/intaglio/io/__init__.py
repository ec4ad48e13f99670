"""Files: tensors read from and written to them."""
