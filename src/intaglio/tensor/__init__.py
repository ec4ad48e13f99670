"""What users call: the Tensor and its operations."""
