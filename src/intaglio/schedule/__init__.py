"""From a program of writes to kernels: order, hazards, fusion, memory."""
