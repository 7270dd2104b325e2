"""Measures of how close an answer is to the one from pooled data."""

from eigenmesh.metrics.clustering import feature_space_inertia, recovery_error
from eigenmesh.metrics.subspace import (
    aligned_error,
    principal_angles,
    projector_distance,
    sin_theta,
)

__all__ = [
    "aligned_error",
    "feature_space_inertia",
    "principal_angles",
    "projector_distance",
    "recovery_error",
    "sin_theta",
]
