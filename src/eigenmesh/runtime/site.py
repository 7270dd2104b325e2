"""A site: who owns the data, what may leave, and a private store. It never travels."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from eigenmesh.errors import InputError, PartitionError, PolicyRefusal, StepRefused
from eigenmesh.runtime.approvals import Approvals
from eigenmesh.runtime.budget import Account, row_digests
from eigenmesh.runtime.content import Trust
from eigenmesh.runtime.disk_store import ANY, Origin
from eigenmesh.runtime.policy import Policy
from eigenmesh.runtime.prepared import FIELDS, RowRule, store_key
from eigenmesh.runtime.rolls import MOST_ROSTERS, Rolls
from eigenmesh.runtime.site_log import SiteLog
from eigenmesh.runtime.spanning_tree import NOBODY
from eigenmesh.runtime.tally import Tally
from eigenmesh.safe_files import create_once, private_folder

OWN_TARGETS, OWN_WEIGHTS = "the site's own targets", "the site's own weights"  # keys of a store
_MOST_CHOICES = 100  # of samples, over the life of a site's process
_MOST_KEPT = 1000  # results of studies in a site's store
_KEY_FILE = "site.key"
_KEY_BYTES = 32
_MARKS = 8  # rows that tell a data set
_SECRETS: dict[tuple[str, str], bytes] = {}  # of sites without a folder, by name and data
_WHOLE = 1 << 17  # numbers of which a digest takes a millisecond
_SAMPLE, _SAMPLE_ROWS = 1 << 15, 256  # numbers of what is larger, in so many rows at least
_BLOCK = 1 << 20  # numbers in memory at a time
Data = Any  # a 2-D numpy array, memory map or scipy CSR matrix
Words = NDArray[np.uint64]
T = TypeVar("T")
_UNSTATED = Policy()  # of sites that state none; nothing changes a policy


@dataclass
class Site:
    """One owner of data.

    `opens` gives the data when a party first needs them, so that a path is read where it lies;
    `identifies` gives a digest of the sample ids in their order, empty where there are none, and
    `names_columns` the columns' names, None where they have none; which never leave the site.
    `level_columns` are the columns, by number, that hold codes of levels (`runtime.levels`).
    `store` keeps private results between runs (training columns, scores), in memory or on the
    site's disk (`DiskStore`); nothing in the federation layer sends it anywhere. `state_dir`, if
    given, is the site's own folder for the state of a running party, so that a restarted site can
    go on. `matcher`, if given, can match the site's samples with those of others, who may have them
    in another order, or not at all. `remarks` are what its owner should know, by what they are
    about. `trust` says who else is there: everybody in one trust "domain", or "organisations" that
    do not trust each other, where a refusal tells the name of a rule and nothing of the data.
    `peers` are the public keys by which the other sites sign; in one trust domain, or with
    `first_keys`, the first that is seen of a site is taken for its own.
    `split` says whether its data are "rows" or "columns" of the whole, where the site itself does.
    `log`, if given, has a line of every request and of every message that left. `renew` is called
    before each run, and sees to what its owner has changed since.
    """

    name: str
    opens: Callable[[], Data]
    policy: Policy = _UNSTATED
    identifies: Callable[[], str] = str
    names_columns: Callable[[], tuple[str, ...] | None] = lambda: None
    level_columns: Callable[[], tuple[int, ...]] = tuple
    store: MutableMapping[str, Mapping[str, Any]] = field(default_factory=dict)
    state_dir: Path | None = None
    matcher: Any = None
    remarks: dict[str, str] = field(default_factory=dict)
    trust: Trust = "domain"
    peers: dict[str, bytes] = field(default_factory=dict)  # the others' public keys, by name
    first_keys: bool = False
    # Which question, study and fit a key of the store is of.
    left_by_studies: MutableMapping[str, Origin] = field(default_factory=dict)
    tallies: dict[str, Tally] = field(default_factory=dict)  # of the run that left it, by key
    split: str | None = None
    log: SiteLog | None = None
    submitter: str = ""  # on whose behalf requests come, as far as the engine knows
    renew: Callable[[Site], None] = field(default=lambda site: None, repr=False)
    _data: Data = field(default=None, repr=False)
    _of_data: dict[str, Any] = field(default_factory=dict, repr=False)
    _approvals: Approvals | None = field(default=None, repr=False)
    _account: Account | None = field(default=None, repr=False)
    _rolls: Rolls | None = field(default=None, repr=False)
    _rosters: Rolls | None = field(default=None, repr=False)
    _openings: int = field(default=0, repr=False)  # how often the data were opened anew
    _choices: list[frozenset[int]] = field(default_factory=list, repr=False)  # of samples
    _secret: bytes | None = field(default=None, repr=False)
    _identity: bytes = field(default_factory=partial(os.urandom, _KEY_BYTES), repr=False)

    @property
    def is_open(self) -> bool:
        """Whether the data have been used."""
        return self._data is not None

    @property
    def data(self) -> Data:
        """The site's data, opened on first use."""
        if self._data is None:
            self._data = self.opens()
        return self._data

    def reopen(self) -> None:
        """Open the data anew at their next use: other samples have been chosen."""
        self._data, self._of_data = None, {}
        self._openings += 1

    def once(self, name: str, make: Callable[[], T]) -> T:
        """What is made of the data once, and kept while the site has them; it never leaves."""
        if name not in self._of_data:
            self._of_data[name] = make()
        value: T = self._of_data[name]
        return value

    def approve(self, study: Any, *, by: str = "", submitters: Sequence[str] = ()) -> None:
        """Let a study, or a whole fit, happen at this site: `em.study` has it, or its digest.

        `submitters` are who may ask for it, anybody if there are none. Kept in `state_dir` for the
        next start, and for a host in another process.

        >>> site = Site("a", lambda: np.ones((2, 2)), Policy(approve="each"))
        >>> site.approve("0" * 64)
        """
        self.approvals.approve(study, by=by, submitters=tuple(submitters))

    def take_over(self, former: Policy) -> None:
        """The policy that this party had when a model was fitted, if the site states none now."""
        self.policy = stated_policy(self.policy, former)

    @property
    def approvals(self) -> Approvals:
        """What was approved here; in one file of the site that others may write to."""
        if self._approvals is None:
            self._approvals = Approvals(None if self.state_dir is None else self.file(".approved"))
        return self._approvals

    @property
    def account(self) -> Account:
        """What studies have spent of the policy's budget."""
        if self._account is None:
            self._account = Account(self.file if self.state_dir is not None else None)
        return self._account

    @property
    def rolls(self) -> Rolls:
        """Whom the masked sums that this site helped to open have covered."""
        if self._rolls is None:
            self._rolls = Rolls(self.file(".rolls") if self.state_dir is not None else None)
        return self._rolls

    @property
    def rosters(self) -> Rolls:
        """The same by what kind of sum it was, over the life of a data set."""
        if self._rosters is None:
            path = self.file(".rosters") if self.state_dir is not None else None
            self._rosters = Rolls(path, MOST_ROSTERS)
        return self._rosters

    @property
    def marks(self) -> tuple[bytes, ...]:
        """Digests of a few rows, by which other versions of the data are known to be that.

        Of two sets that have most rows in common they are mostly the same, whoever chose the rows.
        """
        smallest = self.once("marks", lambda: np.unique(row_digests(self.data))[:_MARKS])
        return tuple(digest.tobytes() for digest in smallest)

    def file(self, suffix: str) -> Path:
        """A file of this site: a site may be called anything, a file may not."""
        assert self.state_dir is not None
        return private_folder(self.state_dir) / f"{quote(self.name, safe='')}{suffix}"

    @property
    def fingerprint(self) -> str:
        """A digest of the data; between organisations of every value, else of enough of them.

        >>> Site("a", lambda: np.ones((2, 2))).fingerprint[:8]
        '6661377f'
        """
        whole = self.trust == "organisations"
        return self.once("fingerprint", lambda: fingerprint(self.data, whole=whole))

    @property
    def key(self) -> bytes:
        """32 bytes that move the draws which nobody else may know.

        Between organisations they are secret, and kept in `state_dir` for the next start; without
        one they last as long as the process. In one trust domain there is nobody to keep them from:
        they follow from the data, so that every engine draws alike.
        """
        if self.trust == "domain":
            return bytes.fromhex(self.fingerprint)
        if self.state_dir is None:
            whose = (self.name, self.fingerprint)
            return _SECRETS.setdefault(whose, os.urandom(_KEY_BYTES))
        if self._secret is None:
            self._secret = _secret_in(self.state_dir)
        return self._secret

    @property
    def identity(self) -> bytes:
        """32 secret bytes by which the site signs; between organisations always the same."""
        secret = self.key if self.trust == "organisations" else self._identity
        return hashlib.sha256(b"eigenmesh identity" + secret).digest()


def stated_policy(own: Policy, former: Policy) -> Policy:
    """A site's own policy; where it states none, a former one, which is made no looser by that.

    >>> stated_policy(Policy(), Policy(allow={"counts"}, min_rows=1))
    Policy(allow={'counts'})
    >>> stated_policy(Policy(allow={"gram"}), Policy(allow={"counts"}))
    Policy(allow={'gram'})
    """
    if own != Policy():  # which allows all that a policy can, but for its fewest rows
        return own
    fewest = max(own.min_rows, former.min_rows)
    return Policy.from_tree({**former.to_tree(), "min_rows": fewest})


def fingerprint(data: Any, *, whole: bool = False) -> str:
    """A digest of shape and values of an array, memory map or CSR matrix, in hex.

    The same numbers have the same digest in rows or columns order, sparse or dense, in single or
    double precision, so that draws which follow from it are the same, too.

    Of a large one, rows that are evenly spaced stand for all unless `whole`: a fit should not take
    longer for it.

    >>> X = np.arange(6.0).reshape(3, 2)
    >>> fingerprint(X) == fingerprint(X.astype(np.float32)) != fingerprint(X + 1)
    True
    """
    n, d = map(int, data.shape)
    is_sample = n * d > _WHOLE and not whole
    stride = max(min(n * d // _SAMPLE, n // _SAMPLE_ROWS), 1) if is_sample else 1
    weights = _column_weights(d)
    digest = hashlib.sha256(f"{n} {d}".encode())
    step = stride * max(_BLOCK // max(d, 1), 1)
    for start in range(0, n, step):
        block = data[start : start + step : stride]
        words = _sparse_words(block, weights) if _is_sparse(block) else _words(block, weights)
        digest.update(words.tobytes())
    return digest.hexdigest()


@lru_cache(maxsize=4)
def _column_weights(d: int) -> Words:
    return np.random.default_rng(0).integers(2**64, size=d, dtype=np.uint64)


def _is_sparse(data: Any) -> bool:
    return hasattr(data, "indptr")


def _words(block: Any, weights: Words) -> Words:
    """One of each row: its numbers' bits, weighted by column, modulo 2^64; a zero has none."""
    return np.asarray(_bits(block) @ weights)


def _sparse_words(block: Any, weights: Words) -> Words:
    ends = np.concatenate([[np.uint64(0)], np.cumsum(_bits(block.data) * weights[block.indices])])
    return np.asarray(np.diff(ends[block.indptr]))


def _bits(values: Any) -> Words:
    values = np.asarray(values)
    if values.dtype != np.float32:
        with np.errstate(over="ignore"):
            values = values.astype(np.float32)
    single = values + np.float32(0)  # which has no -0
    return np.asarray(single.view(np.uint32).astype(np.uint64))


def _secret_in(folder: Path) -> bytes:
    """The site's secret, drawn at its first use; its file is its owner's alone."""
    path = private_folder(folder) / _KEY_FILE
    if not path.exists():
        create_once(path, os.urandom(_KEY_BYTES))
    secret = path.read_bytes()
    if len(secret) != _KEY_BYTES:
        raise InputError(
            f"{path} has {len(secret)} bytes; the site's key of {_KEY_BYTES} is expected: restore "
            f"the file, or remove it for a new key (what left before was drawn by the old one, and "
            f"both together tell more)"
        )
    return secret


class SiteView:
    """What a party sees of its site and of its place in the federation."""

    def __init__(self, site: Site, index: int, names: tuple[str, ...]) -> None:
        self._site = site
        self.index = index
        self.names = names
        self.neighbours: tuple[int, ...] = ()
        self.sends_nothing = False  # the site's owner works on it alone
        self.kernel_values: Any = None  # room for its rows', if it wants them
        self.way = ""  # of an exchange along a tree: "up" or "down"; empty for all neighbours
        self.parent: int | None = None  # on that tree
        self.children: tuple[int, ...] = ()
        self.missing = NOBODY  # who had left when that tree was made
        self.study, self.fit = "", ""  # digests of the study under way, and of the fit it is of
        self.lineage = ""  # of the run under way: it reads what runs of the same lineage left
        self.question = ""  # a digest of all that was asked so far, where the site has a budget
        self.takes: list[str] | None = None  # what of the store an answer is made of, likewise
        self.draws = 0  # of the site's own that it has seen
        self.loss = 0.0  # of privacy, that an answer costs by its noise (`runtime.privacy`)
        self.n_summed = 1  # parties whose sums are masked together; 1 where they are not
        # The total before, as a message of a type, where the coordinator has to show and prove it.
        self.shown: Callable[[type[Any]], Any] | None = None
        self.prepared = ""  # the name of how rows were prepared for the run under way
        self.tally = Tally()  # of the run under way

    @property
    def name(self) -> str:
        """The site's name."""
        return self._site.name

    @property
    def data(self) -> Data:
        """The site's rows or columns; rows as they were prepared, where the study says so."""
        if self.prepared:
            return self._prepared_rows()
        if self._site.level_columns():
            raise PartitionError(
                f"party {self.name!r} has columns of levels, which are no numbers to compute with; "
                f"fit with preparation=em.Preparation(categories=...), or leave them out",
                party=self.name,
            )
        return self._site.data

    @property
    def unprepared(self) -> Data:
        """The data as the site has them, codes of levels included."""
        return self._site.data

    @property
    def n_values(self) -> int:
        """The numbers that shipping the data takes, as the site has them: nobody ships prepared."""
        own = self._site.data
        return int(own.nnz if _is_sparse(own) else own.size)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of `data`; before rows have been prepared, as the site has them."""
        n_rows, n_columns = self._site.data.shape
        takes, self.takes = self.takes, None  # a size is no part of an answer
        share = self.kept(store_key(self.prepared), *FIELDS) if self.prepared else None
        self.takes = takes
        return int(n_rows), int(n_columns) if share is None else RowRule.kept_as(share).width

    def _prepared_rows(self) -> Data:
        rule = self._row_rule()
        # Of one preparation at a time: rows are kept no more than twice.
        rows = self._site.once("prepared rows", dict[str, Data])
        if rule.digest not in rows:
            rows.clear()
            rows[rule.digest] = rule.apply(self._site.data)
        return rows[rule.digest]

    def _row_rule(self) -> RowRule:
        share = self.kept(store_key(self.prepared), *FIELDS)
        if share is None:
            raise StepRefused("the study is of prepared rows; nobody has prepared them for it")
        return RowRule.kept_as(share)

    @property
    def level_columns(self) -> tuple[int, ...]:
        """The columns, by number, that hold codes of levels."""
        return self._site.level_columns()

    @property
    def may_tell_rows(self) -> bool:
        """Whether the site's policy lets single rows out."""
        return not self._site.policy.forbids({"rows"})

    @property
    def min_rows(self) -> int:
        """The fewest rows behind any number that is not a row, by the site's policy."""
        return self._site.policy.min_rows

    @property
    def rows_of_a_largest(self) -> int:
        """Of how many rows the mean is told in place of a largest value; 1 if rows may leave.

        The largest by a question of the asker's choice is about one row.
        """
        return 1 if self.may_tell_rows else self.min_rows

    @property
    def counts_numbers(self) -> bool:
        """Whether rows must not follow from numbers over some: they are kept, and nothing masks."""
        return not (self.may_tell_rows or self.n_summed > 1)

    def fewest_seen(self, numbers: int) -> int:
        """Rows behind so many numbers, whoever says how they are asked for.

        Where rows are kept, so many that the numbers do not determine them, unless masks hide them.
        """
        least = max(2, self.min_rows)  # one row shows no variance
        if not self.counts_numbers:
            return least
        # Levels of a column become columns, and tell no more than it.
        n_columns = min(self.shape[1], int(self._site.data.shape[1]))
        return max(least, numbers // n_columns + 1)

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
        self._site.reopen()

    def require_other_samples(self, rows: Any) -> None:
        """Between organisations: refuse samples that differ from an earlier choice by too few.

        Two answers over samples that differ by one would differ by what that one is.
        """
        choice, earlier = frozenset(np.asarray(rows).tolist()), self._site._choices
        if self._site.trust == "domain" or choice in earlier:
            return
        few = [len(choice ^ other) < self.min_rows for other in earlier]
        if len(choice) < self.min_rows or any(few) or len(earlier) >= _MOST_CHOICES:
            raise PolicyRefusal(
                f"party {self.name!r} refuses these samples: they are fewer than {self.min_rows}, "
                f"or differ from those of an earlier study by fewer",
                party=self.name,
                rule="min_rows",
            )
        earlier.append(choice)

    def once(self, name: str, make: Callable[[], T]) -> T:
        """What is made of the data once, for all runs while the site has them; it never leaves."""
        of_rows = f" of {self._row_rule().digest}" if self.prepared else ""
        return self._site.once(f"{name}{of_rows}", make)

    def keep(self, key: str, share: Mapping[str, Any], *, for_any: bool = False) -> None:
        """Put a private result into the site's store, for later runs of the same fit.

        With `for_any`, for those of any fit: a share of a model, by which new samples are scored.
        What the site's owner put there, such as targets, no study writes over; and of results that
        studies left, the oldest go when there are too many.
        """
        if key in self._site.store and key not in self._site.left_by_studies:
            raise StepRefused("a study writes over nothing that the site's owner keeps")
        lineage = ANY if for_any else self._lineage
        # In this order: a site that stops in between must not take the share for its owner's.
        self._site.left_by_studies.pop(key, None)
        whose = (self.question, self.study, self.fit, lineage)
        counts = (self.tally.numbers, self.tally.directions)
        self._site.left_by_studies[key] = Origin(*whose, *counts)
        self._site.tallies[key] = self.tally
        self._site.store[key] = dict(share)
        while len(self._site.left_by_studies) > _MOST_KEPT:
            oldest = next(iter(self._site.left_by_studies))
            del self._site.left_by_studies[oldest]
            self._site.tallies.pop(oldest, None)
            self._site.store.pop(oldest, None)

    def kept(self, key: str, *fields: str) -> Mapping[str, Any] | None:
        """A private result of an earlier run, or what the site's owner put there; or None.

        It must have these `fields`, which say what it is: what a run left as labels, or the owner
        as targets, is never read as points. What a run of another lineage left is not there.
        """
        origin = self._site.left_by_studies.get(key)
        if self.takes is not None:
            self.takes.append(f"the owner's {key}" if origin is None else origin.question)
        if origin is not None and origin.lineage not in (ANY, self._lineage):
            return None
        if origin is not None and origin.lineage != ANY:  # else a fit is over
            left_by = self._site.tallies.setdefault(key, Tally(origin.numbers, origin.directions))
            self.tally.go_on_from(left_by)
        share = self._site.store.get(key)
        if share is not None and not share.keys() >= set(fields):
            raise StepRefused("what the site keeps under this name is something else")
        return share

    @property
    def _lineage(self) -> str:
        """Of other samples nothing is read that was left of the old ones, one a row."""
        return f"{self.lineage} {self._site._openings}"

    def generator(self, seed: int, protocol: int, round_: int = 0) -> np.random.Generator:
        """A stateless draw of this party: the same seed and round give the same numbers.

        Whoever knows the seed can repeat it: it is for draws that all may know.
        """
        key = (self.index, protocol, round_)
        return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=key))

    def private_generator(self, protocol: int, round_: int = 0) -> np.random.Generator:
        """A stateless draw that only this site can repeat (`Site.key`), and no seed moves.

        It is for draws that must not be known, such as which rows a sum covers: fits that differ
        in their seeds draw the same, so that many of them tell no more than one.
        """
        self.draws += 1
        purpose = f"draw {protocol} {round_}".encode()
        entropy = hashlib.blake2b(purpose, key=self._site.key).digest()
        # The words of the number that the digest is: whoever seeds by it drops zeros at its end.
        words = np.frombuffer(entropy, "<u4")
        return np.random.default_rng(words if words[-1] else np.trim_zeros(words, "b"))
