"""A site: who owns the data, what may leave, and a private store. It never travels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from eigenmesh.errors import StepRefused
from eigenmesh.runtime.policy import Policy

_MOST_KEPT = 1000  # results of studies in a site's store
Data = Any  # a 2-D numpy array, memory map or scipy CSR matrix


@dataclass
class Site:
    """One owner of data.

    `opens` gives the data when a party first needs them, so that a path is read where it lies;
    `identifies` gives a digest of the sample ids in their order, empty where there are none, and
    `names_columns` the columns' names, None where they have none; which never leave the site.
    `store` keeps private results between runs (training columns, scores); nothing in the
    federation layer sends it anywhere. `state_dir`, if given, is the site's own folder for the
    state of a running party, so that a restarted site can go on. `matcher`, if given, can match the
    site's samples with those of others, who may have them in another order, or not at all.
    `remarks` are what its owner should know, by what they are about.
    """

    name: str
    opens: Callable[[], Data]
    policy: Policy = field(default_factory=Policy)
    identifies: Callable[[], str] = str
    names_columns: Callable[[], tuple[str, ...] | None] = lambda: None
    store: dict[str, dict[str, Any]] = field(default_factory=dict)
    state_dir: Path | None = None
    matcher: Any = None
    remarks: dict[str, str] = field(default_factory=dict)
    left_by_studies: dict[str, None] = field(default_factory=dict)  # keys of the store, in order
    _data: Data = field(default=None, repr=False)

    @property
    def data(self) -> Data:
        """The site's data, opened on first use."""
        if self._data is None:
            self._data = self.opens()
        return self._data


class SiteView:
    """What a party sees of its site and of its place in the federation."""

    def __init__(self, site: Site, index: int, names: tuple[str, ...]) -> None:
        self._site = site
        self.index = index
        self.names = names
        self.neighbours: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        """The site's name."""
        return self._site.name

    @property
    def data(self) -> Data:
        """The site's rows or columns."""
        return self._site.data

    @property
    def sample_ids_hash(self) -> str:
        """Digest of the site's sample ids, in order; empty where there are none."""
        return self._site.identifies()

    @property
    def column_names(self) -> tuple[str, ...] | None:
        """Names of the site's columns, or None."""
        return self._site.names_columns()

    def remark(self, about: str, words: str) -> None:
        """Tell the site's owner something; it leaves no site."""
        self._site.remarks.setdefault(about, words)

    @property
    def matcher(self) -> Any:
        """What matches the site's samples with others', or None."""
        return self._site.matcher

    def reopen(self) -> None:
        """Open the data anew at their next use: other samples have been chosen."""
        self._site._data = None

    def keep(self, key: str, share: Mapping[str, Any]) -> None:
        """Put a private result into the site's store, for a later run at this site.

        What the site's owner put there, such as targets, no study writes over; and of results that
        studies left, the oldest go when there are too many.
        """
        if key in self._site.store and key not in self._site.left_by_studies:
            raise StepRefused("a study writes over nothing that the site's owner keeps")
        self._site.store[key] = dict(share)
        self._site.left_by_studies[key] = None
        while len(self._site.left_by_studies) > _MOST_KEPT:
            oldest = next(iter(self._site.left_by_studies))
            del self._site.left_by_studies[oldest]
            self._site.store.pop(oldest, None)

    def kept(self, key: str) -> Mapping[str, Any] | None:
        """A private result of an earlier run, or None."""
        return self._site.store.get(key)

    def generator(self, seed: int, protocol: int, round_: int = 0) -> np.random.Generator:
        """A stateless draw of this party: the same seed and round give the same numbers."""
        key = (self.index, protocol, round_)
        return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=key))
