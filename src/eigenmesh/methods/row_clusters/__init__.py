"""k-means of the rows themselves, where they are."""
