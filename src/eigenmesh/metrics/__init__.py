"""Measures of how close an answer is to the one from pooled data."""

from eigenmesh.metrics.subspace import (
    aligned_error,
    principal_angles,
    projector_distance,
    sin_theta,
)

__all__ = ["aligned_error", "principal_angles", "projector_distance", "sin_theta"]
