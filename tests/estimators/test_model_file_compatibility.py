"""Models that an earlier version wrote load, and answer as they did then."""

import zipfile
from pathlib import Path

import numpy as np
import pytest

import eigenmesh as em

ARCHIVES = sorted(Path(__file__).parent.glob("models_*/models.zip"))
pytestmark = pytest.mark.filterwarnings("ignore::eigenmesh.errors.EigenmeshWarning")


def written_models():
    for archive in ARCHIVES:
        names = {Path(file).stem for file in zipfile.ZipFile(archive).namelist()}
        models = sorted(name for name in names if ".share-" not in name and name != "new-rows")
        yield from (pytest.param(archive, name, id=name) for name in models)


@pytest.mark.parametrize(("archive", "name"), list(written_models()))
def test_an_earlier_versions_model_answers_as_it_did(archive, name, tmp_path):
    model, answers, X = unpacked(archive, name, tmp_path)
    for ask, then in answers.items():
        scale = np.abs(then).max(initial=1.0)
        np.testing.assert_allclose(
            asked(model, ask, X, answers), then, rtol=0, atol=1e-10 * scale, err_msg=ask
        )


def unpacked(archive, name, folder):
    with zipfile.ZipFile(archive) as opened:
        files = [file for file in opened.namelist() if file.split(".")[0] == name]
        opened.extractall(folder, [*files, "new-rows.npz"])
    X = np.load(folder / "new-rows.npz")["X"]
    answers = dict(np.load(folder / f"{name}.npz"))
    return em.load(folder / f"{name}.em"), answers, X


def asked(model, ask, X, answers):
    if ask == "eigenvalues_":
        return model.eigenvalues_
    if ask == "inverse_transform":
        return model.inverse_transform(answers["transform"])
    if ask == "partial_fit":  # the last that is asked, since the model is another one after it
        return model.partial_fit(X).transform(X)
    return getattr(model, ask)(named(model, X))


def named(model, X):
    """The rows under the names that the model was fitted with, if it was fitted to a frame."""
    names = getattr(model, "feature_names_in_", None)
    if names is None:
        return X
    return pytest.importorskip("pandas").DataFrame(X, columns=names)
