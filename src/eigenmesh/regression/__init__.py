"""`KernelPCRegressor`, the front door."""
