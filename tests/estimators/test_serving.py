"""Models of landmarks as scikit-learn's objects, and as ONNX."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.kernel_approximation import Nystroem

import eigenmesh as em
from eigenmesh.errors import InputError

X = np.random.default_rng(0).normal(size=(120, 4)) + 0.5
NEW = np.random.default_rng(1).normal(size=(30, 4))
KERNELS = [
    {"kernel": "linear"},
    {"kernel": "poly", "gamma": 0.3, "degree": 2, "coef0": 0.7},
    {"kernel": "rbf", "gamma": "median"},
    {"kernel": "cosine"},
    {"kernel": "laplacian", "gamma": 0.2},
]


def fitted(**options):
    return em.KernelPCA(3, method="diskpca", random_state=0, **options).fit(X)


@pytest.mark.parametrize("options", KERNELS, ids=lambda options: options["kernel"])
def test_a_pipeline_of_scikit_learn_has_the_same_scores(options):
    kpca = fitted(**options)
    pipeline = kpca.to_sklearn()
    assert {type(part).__module__.split(".")[0] for _, part in pipeline.steps} == {"sklearn"}
    np.testing.assert_allclose(pipeline.transform(NEW), kpca.transform(NEW), rtol=0, atol=1e-10)


def test_a_model_over_parties_serves_too_and_knows_its_columns():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(X, columns=list("abcd"))
    parts = em.Partitioned(rows=[frame[:70], frame[70:]])
    kpca = em.DisKPCA(2, kernel="rbf", gamma=0.1, random_state=0).fit(parts)
    pipeline = kpca.to_sklearn()
    assert list(pipeline.feature_names_in_) == list("abcd")
    assert len(pipeline.get_feature_names_out()) == 2
    np.testing.assert_allclose(pipeline.transform(frame), kpca.transform(frame), atol=1e-10)


def test_sparse_landmarks_serve():
    kpca = em.DisKPCA(2, landmarks="uniform", kernel="rbf", gamma=0.1, random_state=0)
    kpca.fit(sp.csr_array(np.where(X > 0.3, X, 0)))
    new = sp.csr_array(NEW)
    np.testing.assert_allclose(kpca.to_sklearn().transform(new), kpca.transform(new), atol=1e-10)


def test_what_scikit_learn_has_no_class_for_is_refused_in_words():
    with pytest.raises(InputError, match="ExactModel; fit with method='diskpca'"):
        em.KernelPCA(2, kernel="rbf").fit(X).to_sklearn()
    with pytest.raises(InputError, match="no kernel 'arc-cosine'"):
        fitted(kernel="arc-cosine", degree=1).to_sklearn()
    with pytest.raises(InputError, match="preparation of its own"):
        fitted(kernel="rbf", preparation=em.Preparation(standardize=True)).to_sklearn()


@pytest.mark.parametrize("options", KERNELS[:-1], ids=lambda options: options["kernel"])
def test_onnx_has_the_same_scores_to_float32(options):
    pytest.importorskip("skl2onnx", reason="pip install 'eigenmesh[onnx]'")
    runtime = pytest.importorskip("onnxruntime", reason="pip install 'eigenmesh[onnx]'")
    kpca = fitted(**options)
    session = runtime.InferenceSession(kpca.to_onnx(), providers=["CPUExecutionProvider"])
    rows = np.vstack([NEW, np.zeros((1, 4))]).astype(np.float32)
    (scores,) = session.run(None, {"X": rows})
    expected = kpca.transform(rows.astype(np.float64))
    np.testing.assert_allclose(scores, expected, rtol=0, atol=2e-6 * np.abs(expected).max())


def test_onnx_refuses_the_laplacian():
    with pytest.raises(InputError, match="ONNX has no kernel 'laplacian'"):
        fitted(**KERNELS[-1]).to_onnx()


def test_the_pipeline_can_be_cloned_and_fitted_as_scikit_learn_does():
    again = clone(fitted(kernel="rbf", gamma=0.1).to_sklearn()).fit(X)
    assert isinstance(again["kernel"], Nystroem)
