"""One self-contained page about a run: `facts` gathers what it says, `layout` renders it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from eigenmesh.reports.page.facts import facts_of
from eigenmesh.reports.page.layout import document
from eigenmesh.safe_files import NewFile, write_together


def report(
    model: Any,
    path: str | Path,
    *,
    data: Any = None,
    labels: Any = None,
    no_rows: str = "",
) -> Path:
    """Write one HTML page about a fitted model: what it found, what it cost, and what left whom.

    The page needs no network and no other file.

    Parameters
    ----------
    model : any fitted estimator.
    path : of the page.
    data : rows or samples whose scores are drawn, as `transform` takes them; None draws none.
        Single rows on a page are a disclosure: pass only what the page's readers may see.
    labels : what the rows may be coloured by besides party and cluster: an array, or for rows split
        over parties a list or dictionary with one a party.
    no_rows : why no rows are drawn, where none are.

    Examples
    --------
    >>> import tempfile, numpy as np, eigenmesh as em
    >>> X = np.random.default_rng(0).normal(size=(60, 4))
    >>> parts = em.split(X, 2, random_state=0)
    >>> kpca = em.KernelPCA(2, random_state=0).fit(parts)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     "svg" in em.report(kpca, folder + "/page.html", data=parts).read_text()
    True
    """
    page = document(facts_of(model, data, labels, no_rows))
    write_together([NewFile(Path(path), page.encode())])
    return Path(path)
