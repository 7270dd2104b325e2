"""`KernelKMeans`, the front door."""
