"""From kernels to instructions: ranges, placement, vectors, tiles, linear order."""
