"""`KernelPCA` of a Spark frame: three passes where the rows are, and the same rows' answer."""

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_digits
from sklearn.decomposition import KernelPCA
from tests.engines.spark_session import frame_of, session

import eigenmesh as em
from eigenmesh.data import spark_passes
from eigenmesh.kernel_pca import sampled_fit

pytestmark = pytest.mark.timeout(300)  # Java and three interpreters start in the first test
DIGITS = load_digits().data[:400, 20:36] / 16  # sixteen columns that vary
NAMES = [f"pixel.{i}" for i in range(16)]
IDS = [f"row {i}" for i in range(400)]


def frame(X, cuts=(), **more):
    return frame_of({**more, **dict(zip(NAMES, X.T, strict=True))}, cuts)


def test_equals_scikit_learn_of_the_collected_rows_when_every_row_is_a_landmark():
    # Names with dots, partitions of 0, 1, 149 and 250 rows.
    rows = em.SparkRows(frame(DIGITS, (0, 1, 150), **{"row.id": IDS}), id_column="row.id")
    kpca = em.KernelPCA(4, kernel="rbf", gamma="scale", n_landmarks=400, landmarks="uniform")
    kpca.fit(rows)
    pooled = KernelPCA(4, kernel="rbf", gamma=kpca.gamma_).fit(DIGITS)
    assert kpca.gamma_ == pytest.approx(1 / (16 * DIGITS.var()), rel=1e-12)
    np.testing.assert_allclose(kpca.eigenvalues_, pooled.eigenvalues_, rtol=1e-9)
    np.testing.assert_allclose(kpca.total_variance_, np.trace(centred(pooled)), rtol=1e-9)
    assert kpca.shortfall_ == 0
    assert list(kpca.feature_names_in_) == NAMES

    # New frames go by their columns' names, and ids come out beside the scores.
    turned = rows.frame.select(*(f"`{name}`" for name in [*NAMES[::-1], "row.id"])).filter(
        "`row.id` > 'row 3'"
    )
    scores = kpca.transform(em.SparkRows(turned, "row.id")).toArrow().to_pandas()
    scores = scores.set_index("row.id")
    own = pd.Series(range(400), IDS)[scores.index]
    assert 0 < len(scores) < 400
    assert list(scores.columns) == list(kpca.get_feature_names_out())
    expected = pooled.transform(DIGITS)[own]
    signs = np.sign((expected * scores).sum().to_numpy())
    np.testing.assert_allclose(scores * signs, expected, atol=1e-9)
    with pytest.raises(em.EigenmeshError, match="lacks column 'pixel.2', which the fit has"):
        kpca.transform(turned.drop("row.id", NAMES[2]))


def centred(pooled):
    K = np.exp(-pooled.gamma_ * np.square(DIGITS[:, None] - DIGITS).sum(axis=2))
    return K - K.mean(axis=0) - K.mean(axis=1)[:, None] + K.mean()


def test_equals_the_fit_of_an_array_with_the_same_landmarks(monkeypatch):
    # Executors add up in groups; rows are arrays of float32, drawn rows are fewer than all.
    monkeypatch.setattr(spark_passes, "AT_ONCE", 1)
    monkeypatch.setattr(sampled_fit, "SAMPLE_ROWS", 300)
    X = DIGITS.astype(np.float32)
    plain = frame_of({"image": list(X)}, (60, 200, 350))
    vectors = plain.select(plain.image.cast("array<float>").alias("image"))
    options = {"kernel": "rbf", "gamma": "mean-distance", "random_state": 0, "accuracy": 0.3}
    kpca = em.KernelPCA(3, **options, n_landmarks=15).fit(vectors)
    array = em.KernelPCA(3, **options, landmarks=kpca.landmarks_).fit(iter([X]))
    assert "rows of 4 Spark partitions" in kpca.method_
    assert "by 300 of 400 rows" in kpca.method_
    assert kpca.feature_names_in_[15] == "image[15]"
    assert kpca.gamma_ == pytest.approx(array.gamma_, rel=1e-6)
    np.testing.assert_allclose(kpca.eigenvalues_, array.eigenvalues_, rtol=1e-5)
    assert kpca.landmark_residual_ == pytest.approx(array.landmark_residual_, rel=1e-4)
    slack = 4 * (kpca.residual_error_ + array.residual_error_)
    assert kpca.total_variance_ == pytest.approx(array.total_variance_, abs=slack, rel=1e-6)
    scores = kpca.transform(vectors)
    assert {field.dataType.simpleString() for field in scores.schema.fields} == {"float"}
    own, others = scores.toArrow().to_pandas().to_numpy(), array.transform(X)
    np.testing.assert_allclose(own * np.sign((own * others).sum(axis=0)), others, atol=1e-4)
    # What landmarks miss is measured on the rows that were drawn.
    exact = KernelPCA(3, kernel="rbf", gamma=kpca.gamma_).fit(X.astype(float))
    true = 1 - kpca.eigenvalues_ / exact.eigenvalues_
    assert np.abs(kpca.shortfalls_ - true).max() < 0.5 * true.max()


def test_a_frame_that_is_not_usable_is_refused_with_the_place_or_the_remedy():
    X = DIGITS[:40].copy()
    X[33, 5] = np.nan
    broken = frame(X, (30,), word=IDS[:40])
    kpca = em.KernelPCA(2)
    with pytest.raises(em.EigenmeshError, match=r"'word' of type string.*id_column='word'"):
        kpca.fit(broken)
    with pytest.raises(em.EigenmeshError, match=r"nan in column 'pixel.5', row 3 of partition 1"):
        kpca.fit(em.SparkRows(broken, "word"))
    with pytest.raises(em.EigenmeshError, match=r"no column 'nowhere', only word, pixel"):
        kpca.fit(em.SparkRows(broken, "nowhere"))
    with pytest.raises(em.EigenmeshError, match="no rows; at least 2"):
        kpca.fit(em.SparkRows(broken.filter("word = ''"), "word"))
    for options, words in (
        ({"method": "exact"}, "method is 'exact'.*blocks of rows add up"),
        ({"kernel": "sigmoid"}, "kernel is 'sigmoid'"),
        ({"preparation": em.Preparation()}, "taken as it is.*StandardScaler"),
        ({"epsilon": 1.0, "kernel": "rbf", "gamma": 1.0}, "toPandas"),
    ):
        with pytest.raises(em.EigenmeshError, match=words):
            em.KernelPCA(2, **options).fit(broken)
    with pytest.raises(em.EigenmeshError, match="sample_weight is given for a Spark frame"):
        kpca.fit(broken, sample_weight=np.ones(40))
    for act in (em.DisKPCA(2).fit, lambda own: em.Partitioned(rows=[own])):
        with pytest.raises(em.EigenmeshError, match="Spark frame.*toPandas"):
            act(broken)


def test_a_frame_that_comes_out_otherwise_each_time_is_refused():
    def some(batches):
        import os

        for batch in batches:
            yield batch.slice(os.urandom(1)[0] % 100)

    steady = frame_of({"a": DIGITS[:, 0], "b": DIGITS[:, 1]})
    unsteady = steady.mapInArrow(some, steady.schema)
    with pytest.raises(em.EigenmeshError, match=r"had \d+ rows and then \d+.*cache"):
        for _ in range(3):
            em.KernelPCA(2, n_landmarks=20, accuracy=1.0).fit(unsteady)


def test_passes_tell_who_watches_how_far_they_are(monkeypatch):
    monkeypatch.setattr(spark_passes, "_LOOK_SECONDS", 0.01)
    steps = []

    class Log:
        def begin(self, words, rows):
            steps.append((words, rows))

        def advance(self, rows):
            steps.append(rows)

        def end(self, words):
            pass

    with spark_passes.progress.watched(Log()):
        spark_passes.over_partitions(session().range(5).coalesce(1), _rest, "looking", 500)
    assert steps[0] == ("looking", 500)
    assert 0 <= sum(steps[1:]) <= 500


def _rest(number, batches):
    return [number, sum(batch.num_rows for batch in batches)]


def test_an_id_among_the_features_is_noted():
    X = DIGITS.copy()
    X[:, 3] = np.arange(400)
    for fit in (
        lambda rows: em.KernelPCA(2, kernel="rbf", gamma=0.1).fit(rows),
        lambda rows: em.KernelKMeans(2, gamma=0.1).fit(rows),
    ):
        with pytest.warns(em.EigenmeshWarning, match="'pixel.3' looks like an id"):
            notes = fit(frame(X)).report_.notes
        assert sum("'pixel.3' looks like an id" in note for note in notes) == 1
