"""Sums, averages and models without a coordinator."""
