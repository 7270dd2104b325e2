"""Methods: a folder each, with its messages, parties, coordinator, maths and estimator."""
