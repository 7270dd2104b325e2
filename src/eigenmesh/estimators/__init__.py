"""What estimators share: data in, checks, reports, plans, model files."""
