"""What users import: scikit-learn estimators over the protocols."""

from eigenmesh.estimators.base import load
from eigenmesh.estimators.diskpca import DisKPCA
from eigenmesh.estimators.one_shot import OneShotKPCA
from eigenmesh.estimators.plan import plan

__all__ = ["DisKPCA", "OneShotKPCA", "load", "plan"]
