"""`cross_validate`: gamma, and how many components or clusters, chosen on rows that stay put."""
