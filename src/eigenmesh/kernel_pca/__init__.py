"""`KernelPCA`, the front door."""
