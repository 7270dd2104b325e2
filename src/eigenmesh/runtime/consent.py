"""Consent: what a site's policy says of a study, before it begins and before each reply leaves."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from eigenmesh.errors import PolicyRefusal
from eigenmesh.runtime.bounds import outside
from eigenmesh.runtime.budget import Spent, require_epsilon, row_digests
from eigenmesh.runtime.content import (
    OVER_ROWS,
    Release,
    determine_columns,
    is_square,
    is_triangular_factor,
    kinds_of_release,
    numbers_over_rows,
)
from eigenmesh.runtime.courier import naming
from eigenmesh.runtime.message import (
    Form,
    Message,
    fields_of,
    floats_by_kind,
    form_of,
    planned_floats,
    sizes_of,
)
from eigenmesh.runtime.party import Step, Worth
from eigenmesh.runtime.policy import Policy
from eigenmesh.runtime.privacy import loss_of, promised_by
from eigenmesh.runtime.requests import Tree
from eigenmesh.runtime.schedule import Ask, Own, Places, limits, turns_of
from eigenmesh.runtime.site import Site, SiteView
from eigenmesh.runtime.study import Study, fit_digest
from eigenmesh.runtime.tally import Tally

SUMS_OVER_ROWS = frozenset(("centroids", "gram", "moments"))
_OF_NO_ROW = frozenset(("counts", "hashes", "seed"))  # neighbours have the same (`privacy`)
_FREE = nullcontext()  # nothing is counted
_NOTHING, _ROWS, _COLUMNS = frozenset[str](), frozenset({"rows"}), frozenset({"columns"})
_UNASKED = Worth()  # of a step that has nothing to say of its replies
_FORMS = 4096  # of replies, that are remembered


class Consent:
    """A site's side of the studies that it is asked for.

    Of the fit under way it counts the numbers that have left and the products with the site's
    columns (`tally`): what they come to is not seen in any one reply.
    """

    def __init__(self, site: Site, view: SiteView) -> None:
        self.site, self.view = site, view
        self._is_charged = False  # whether the run under way has been counted as a study
        self._fit: tuple[str, int] = ("", -1)  # the fit under way, and the last of its runs
        self._approval = ""  # the digest by which a person approved the run under way

    # Before a study begins.

    def require(
        self, study: Study, fit: list[str], owns: Callable[[], Own], *, is_asked_only: bool = False
    ) -> None:
        """Raise `PolicyRefusal` unless the site's policy allows a study, as far as sizes tell.

        Whoever only asks, before a fit, may ask about stand-ins, which nobody has approved: these
        are held to the policy's words, and nothing is told of what the site owns.
        """
        policy, trust = self.site.policy, self.site.trust
        if policy.leaves_to_sizes and _keeps_to_words(study, policy, trust):
            self._require_content(study, fit, owns)
            return
        for refusal in self.refusals(study, fit, owns):
            if is_asked_only and refusal.rule == "approve":
                return
            raise refusal

    def refusals(
        self, study: Study, fit: list[str], owns: Callable[[], Own]
    ) -> Iterator[PolicyRefusal]:
        """Why the site's policy does not allow a study, a rule at a time.

        What it `owns` is looked at last: whoever stops at the first refusal opens no file for it.
        """
        policy, trust = self.site.policy, self.site.trust
        if policy.protocols is not None or not _keeps_to_words(study, policy, trust):
            yield from _refusals_by_words(study, policy, trust, self.site.name)
        checks: tuple[Callable[[], None], ...] = (
            lambda: self._require_approval(study, fit),
            lambda: self._require_content(study, fit, owns),
            lambda: self._require_epsilon(study),
        )
        for check in checks:
            try:
                check()
            except PolicyRefusal as refusal:
                yield refusal

    def _refuse(self, rule: str, words: str, digest: str = "") -> PolicyRefusal:
        return _refusal(self.site.name, rule, words, digest)

    def _require_approval(self, study: Study, fit: list[str]) -> None:
        """A study by itself is approved, or the whole fit that it says it is a run of."""
        policy = self.site.policy
        if policy.approve == "any":
            return
        listed = policy.approved if policy.approve == "listed" else frozenset[str]()
        approvals, submitter = self.site.approvals, self.site.submitter
        approved = {d for d in approvals.digests if approvals.may_submit(d, submitter)} | listed
        digest = study.as_agreed.digest
        if digest in approved:
            return
        whole = fit_digest(fit)
        if fit and whole in approved and self._is_next(whole, fit, digest):
            return
        waits = whole if digest in fit else digest
        raise self._refuse("approve", f"nobody has approved it; its digest is {waits}", waits)

    def require_standing(self) -> None:
        """Raise `PolicyRefusal` if the approval of the run under way was revoked."""
        if self._approval and self._approval not in self.site.approvals.standing:
            raise self._refuse("approve", "its approval was revoked", self._approval)

    def _is_next(self, whole: str, fit: list[str], digest: str) -> bool:
        """Whether a run is one of the fit's that is still to come; the first begins it anew."""
        places = [i for i, run in enumerate(fit) if run == digest]
        last = self._fit[1] if self._fit[0] == whole else -1
        return any(i == 0 or i >= last for i in places)

    def _require_content(self, study: Study, fit: list[str], owns: Callable[[], Own]) -> None:
        if not self.site.policy.minds_content or study.tree is None:
            return
        own, numbers = owns(), self._tally_of(study, fit).numbers
        so_far = self._release(own, own.rows, numbers, study.scope.split)
        if _keeps_to_content(study, so_far, self.site.policy.allow):
            return
        for expected in expected_releases(study, so_far):
            self._check(*expected)

    def _tally_of(self, study: Study | None, fit: list[str]) -> Tally:
        """What was told before a run begins: by the fit of the last run, if it is a later one."""
        tally = Tally()
        if study is None or not fit or self._fit[0] != fit_digest(fit):
            return tally
        digest = study.as_agreed.digest
        if digest == self.view.study:
            return self.view.tally.begun_anew()
        if digest != fit[0]:
            tally.go_on_from(self.view.tally)
        return tally

    def _require_epsilon(self, study: Study) -> None:
        """A study of several noised releases is refused before the first, not half-way."""
        budget, promise = self.site.policy.budget, promised_by(study.terms.values())
        if budget is None or budget.epsilon is None or not promise:
            return
        with naming(self.site.name):
            spent, _ = self.site.once("spent", self._spent)
            require_epsilon(spent.loss + loss_of(**promise), budget)

    # Before a reply leaves.

    def begin(self, study: Study | None, fit: list[str]) -> None:
        """A run has begun: nothing of it has left."""
        self._is_charged = False
        self.view.tally = self._tally_of(study, fit)
        if study is not None and self.site.policy.budget is not None:
            self.view.question = study.nameless.digest
        self.view.study = "" if study is None else study.as_agreed.digest
        self.view.fit = fit_digest(fit) if fit else ""
        self.view.lineage = "" if study is None else study.circle
        minded = () if self.site.policy.approve == "any" else (self.view.study, self.view.fit)
        standing = self.site.approvals.standing if minded else {}
        self._approval = next((digest for digest in minded if digest in standing), "")
        self.view.prepared = "" if study is None else study.scope.prepared
        self.view.n_summed = _n_summed(study)
        if study is not None and fit:
            digest = study.as_agreed.digest
            self._fit = (self.view.fit, fit.index(digest) if digest in fit else -1)
            # Where nobody approves fits, runs belong to the one that they say; it is only a name.
            named = digest in fit or self.site.policy.approve == "any"
            self.view.lineage += self.view.fit if named else ""

    def export(self) -> list[Any]:
        """What a restarted host goes on from."""
        view = self.view
        of: list[Any] = [view.question, view.study, view.fit, view.lineage]
        of += [self._approval, view.prepared, view.n_summed]
        counts = (view.tally.numbers, view.tally.directions)
        return [*counts, *self._fit, self._is_charged, *of]

    def restore(self, exported: list[Any]) -> None:
        """Go on where `export` was called."""
        numbers, directions, whole, place, self._is_charged, *of = exported
        self.view.tally = Tally(numbers, directions)
        self._fit = (whole, place)
        self.view.question, self.view.study, self.view.fit, self.view.lineage = of[:4]
        self._approval, self.view.prepared, self.view.n_summed = of[4:]

    # What it costs.

    def question(
        self, tree: Tree, brings: Callable[[], Iterable[bytes]]
    ) -> AbstractContextManager[None]:
        """Around all that a request causes; what it `brings` is part of what is asked."""
        return _FREE if self.site.policy.budget is None else self._counted(tree, brings)

    @contextmanager
    def _counted(self, tree: Tree, brings: Callable[[], Iterable[bytes]]) -> Iterator[None]:
        """The question is the digest of a request, with that of all requests before it."""
        self.view.takes, self.view.draws, self.view.loss = [], 0, 0.0
        self.view.question = _chained(self.view.question, *_asked_in(tree), *brings())
        try:
            yield
        finally:
            self._note_takes()
            self.view.takes = None

    def _note_takes(self) -> None:
        """A question whose answer was made of other things in the store is another question."""
        if self.view.takes:
            parts = [own.encode() for own in self.view.takes]
            self.view.question, self.view.takes = _chained(self.view.question, *parts), []

    def charge(self, numbers: int) -> None:
        """Raise `PolicyRefusal` if the budget has not so many numbers left."""
        budget, name = self.site.policy.budget, self.site.name
        if budget is None:
            return
        self._note_takes()
        with naming(name):
            spent, version = self.site.once("spent", self._spent)
            chain = _chained(self.view.question, version)
            if chain in self.site.account.chains and not self.view.loss:
                return  # noise is drawn anew, and costs anew
            rows, columns = self.site.data.shape
            share = numbers / (rows * columns)
            new = int(not self._is_charged)
            cost = Spent([], new, self.view.draws, share, self.view.loss)
            self.site.account.charge(spent, cost, budget, chain)
        self._is_charged = True

    @property
    def minds_versions(self) -> bool:
        """Whether versions of the data are compared, whatever the budget.

        With a budget that is part of it. Without one it holds between organisations, where a policy
        keeps rows; in one trust domain nobody remembers versions: the audit says what they tell.
        """
        return self.site.trust == "organisations" and "rows" not in self.site.policy.allow

    def require_version(self) -> None:
        """Raise `PolicyRefusal` if too few rows changed since answers were given of others."""
        with naming(self.site.name):
            self.site.once("spent", self._spent)

    def _spent(self) -> tuple[Spent, bytes]:
        """What the data have cost, and a name of the version that they are."""
        digests = row_digests(self.site.data)
        spent = self.site.account.of(digests, self.site.policy.min_rows)
        return spent, hashlib.sha256(digests.tobytes()).digest()

    def release(
        self, party: Any, step: Step, messages: Iterable[Message], places: Places, at: At
    ) -> int | None:
        """Raise `PolicyRefusal` if what is about to leave is what may not, by its content.

        Gives the fewest rows behind any number of it, if that was looked at.
        """
        own, split, secure = at
        if not self.site.policy.minds_content or (secure and places.all_summed):
            return None
        fewest, tally = own.rows, self.view.tally
        for message in messages:
            content = _content_of(message)
            tally.add(content.numbers, _directions_of(message, places))
            worth = _UNASKED if step.worth is None else step.worth(party, message)
            covers = own.rows if worth.covers is None else min(worth.covers, own.rows)
            release = self._release(own, covers, tally.numbers, split)
            kinds = (
                worth.kinds
                | _worth_of(tally.directions, own)
                | _factors_in(message, content.squares)
            )
            if release.trust == "organisations" and split == "rows":
                kinds |= _ROWS if 0 < own.columns <= content.width else _NOTHING
            self._check(step, step.reveals, release, kinds)
            fewest = min(fewest, covers)
        return fewest

    def _release(self, own: Own, covers: int, numbers: int, split: str) -> Release:
        policy, trust = self.site.policy, self.site.trust
        return Release(covers, numbers, own.rows, own.columns, policy.min_rows, trust, split)

    def _check(self, step: Step, declared: Kinds, release: Release, besides: Kinds) -> None:
        kinds = declared if release.is_as_declared else kinds_of_release(declared, release)
        kinds = kinds | besides if besides else kinds
        if not self.site.policy.allow.issuperset(kinds):
            why = _reasons(release, besides)
            self.site.policy.check_kinds(kinds, step.name, self.site.name, why)


def _refusal(party: str, rule: str, words: str, digest: str = "") -> PolicyRefusal:
    words = f"party {party!r} refuses the study: {words}"
    return PolicyRefusal(words, party=party, rule=rule, digest=digest)


@lru_cache(maxsize=256)
def _keeps_to_words(study: Study, policy: Policy, trust: str) -> bool:
    """Whether a policy's words allow a study; of sites with one policy it is asked once."""
    return not any(_refusals_by_words(study, policy, trust, ""))


def _refusals_by_words(
    study: Study, policy: Policy, trust: str, party: str
) -> Iterator[PolicyRefusal]:
    """Why a policy does not allow a study, by what it says of all that may be asked of `party`."""
    for refusal in (
        _refused_kinds(study, policy, party),
        _refused_bounds(study, policy, party),
        _refused_parties(study, policy.fewest_parties(trust), party),
        _refused_noise(study, policy, party),
    ):
        if refusal is not None:
            yield refusal


def _refused_kinds(study: Study, policy: Policy, party: str) -> PolicyRefusal | None:
    try:
        for step, kinds in study.leaving.items():
            policy.check_kinds(kinds, step.name, party)
    except PolicyRefusal as refusal:
        return refusal
    return None


def _refused_bounds(study: Study, policy: Policy, party: str) -> PolicyRefusal | None:
    protocols, name = policy.protocols, study.protocol.name
    if protocols is None:
        return None
    if name not in protocols:
        listed = ", ".join(map(repr, protocols)) or "none"
        words = f"its policy does not answer protocol {name!r} (it answers {listed})"
        return _refusal(party, "protocols", words)
    beyond = outside(protocols[name], study.terms, study.scope)
    if beyond is None:
        return None
    return _refusal(party, "protocols", f"{beyond} by its policy for protocol {name!r}")


def _refused_parties(study: Study, fewest: int, party: str) -> PolicyRefusal | None:
    n = study.scope.n_taking_part
    words = f"it is of {n} parties, at least {fewest} must be in"
    return _refusal(party, "min_parties", words) if n < fewest else None


def _refused_noise(study: Study, policy: Policy, party: str) -> PolicyRefusal | None:
    """Where epsilon is bounded, nothing is told of rows but under noise: else it has no end."""
    if policy.budget is None or policy.budget.epsilon is None:
        return None
    for step, kinds in study.leaving.items():
        gives = step.signature.gives
        if gives is not None and not gives.noised and not kinds <= _OF_NO_ROW:
            words = (
                f"its policy bounds epsilon, and step {step.name!r} adds no noise: pass epsilon= "
                f"to KernelPCA or KernelKMeans"
            )
            return _refusal(party, "budget", words)
    return None


def _n_summed(study: Study | None) -> int:
    return study.scope.n_taking_part if study is not None and study.scope.secure else 1


def _asked_in(tree: Tree) -> Iterator[bytes]:
    """What a request asks for, whichever run it is in."""
    for key in ("op", "role", "step", "send", "receive", "neighbours", "along", "told"):
        yield json.dumps(tree.get(key), sort_keys=True).encode()


def _chained(before: str, *parts: bytes) -> str:
    digest = hashlib.sha256(before.encode())
    for part in parts:
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.hexdigest()


Kinds = frozenset[str]
At = tuple[Own, str, bool]  # what the party owns, how data are split, whether sums are masked


class Expected(NamedTuple):
    """What a step of a study will let out, as far as sizes tell before it begins."""

    step: Step
    declared: Kinds
    release: Release
    besides: Kinds

    @property
    def kinds(self) -> Kinds:
        """By content."""
        return kinds_of_release(self.declared, self.release) | self.besides


@lru_cache(maxsize=256)  # parties of one size, and of one party question and enlistment
def expected_releases(study: Study, so_far: Release) -> tuple[Expected, ...]:
    """What will leave a party of which `so_far` has: numbers at least, products at most."""
    return tuple(_expected_releases(study, so_far))


@lru_cache(maxsize=256)
def _keeps_to_content(study: Study, so_far: Release, allow: Kinds) -> bool:
    """Whether all that will leave such a party is of kinds that may."""
    return all(each.kinds <= allow for each in expected_releases(study, so_far))


def _expected_releases(study: Study, so_far: Release) -> Iterator[Expected]:
    own, numbers, directions = Own(so_far.n_rows, so_far.n_columns), so_far.numbers, 0
    for ask, fewest, most in turns_of(study.tree) if study.tree is not None else ():
        kinds = ask.reveals(study.scope.secure)
        if kinds & OVER_ROWS:
            numbers += fewest * _fewest_numbers(ask, own) if fewest else 0
            directions += most * _most_directions(ask, own) if most else 0
            release = so_far._replace(numbers=numbers, covers=_fewest_rows(ask, so_far))
            yield Expected(ask.step, kinds, release, _worth_of(directions, own))


def _fewest_rows(ask: Ask, so_far: Release) -> int:
    """Rows behind a number of a reply: of sums over some rows, as few as its type says.

    Numbers about single samples have kinds of their own (scores, eigenvectors).
    """
    gives = ask.step.signature.gives
    if gives is None or gives.reveals not in SUMS_OVER_ROWS or so_far.split != "rows":
        return so_far.covers
    covers = gives.covers
    return min(covers, so_far.covers) if isinstance(covers, int) else so_far.covers


def _fewest_numbers(ask: Ask, own: Own) -> int:
    """Numbers that a reply has for sure: none where sizes are not told, or may be smaller."""
    gives = ask.step.signature.gives
    if gives is None or not all(limit.exact for limit in limits(ask.up, own).values()):
        return 0
    sizes = {name: limit.size for name, limit in limits(ask.up, own).items()}
    try:
        return numbers_over_rows(planned_floats(gives, sizes))
    except TypeError:  # sizes that the schedule leaves to the data
        return 0


def _most_directions(ask: Ask, own: Own) -> int:
    if isinstance(ask.directions, int):
        return ask.directions
    return ask.up[ask.directions].limit(own).size


class Content(NamedTuple):
    """What a reply's form alone says of it."""

    numbers: int  # that tell of rows
    width: int  # numbers of a single row; 0 where none is about one
    squares: tuple[str, ...]  # fields over rows that may be triangular factors


_contents: dict[Form, Content] = {}


def _content_of(message: Message) -> Content:
    """Looked up: replies of one form are many, of parties alike and of rounds."""
    form = form_of(message)
    content = _contents.get(form)
    if content is None:
        if len(_contents) >= _FORMS:
            _contents.clear()
        content = _contents[form] = _content(message)
    return content


def _content(message: Message) -> Content:
    fields = fields_of(type(message))
    shapes = {field.name: np.shape(getattr(message, field.name)) for field in fields}
    widths = [s[1] for s in shapes.values() if len(s) == 2 and s[0]]
    over_rows = (f.name for f in fields if f.kind in OVER_ROWS)  # counts may have gaps
    return Content(
        numbers_over_rows(floats_by_kind(message)),
        max(widths, default=0) if message.has_single_rows else 0,
        tuple(name for name in over_rows if is_square(shapes[name])),
    )


def _directions_of(message: Message, places: Places) -> int:
    counts = places.directions
    if not counts:
        return 0
    sizes: dict[str, int] = sizes_of(message)
    return max(n if isinstance(n, int) else sizes.get(n, 0) for n in counts)


def _worth_of(directions: int, own: Own) -> Kinds:
    if not directions or not determine_columns(directions, own.rows, own.columns):
        return _NOTHING
    return _COLUMNS


def _factors_in(message: Message, squares: tuple[str, ...]) -> Kinds:
    if not squares:
        return _NOTHING
    factor = any(is_triangular_factor(getattr(message, name)) for name in squares)
    return _COLUMNS if factor else _NOTHING


def _reasons(release: Release, besides: frozenset[str]) -> str:
    if release.covers < release.min_rows:
        return f", which numbers over {release.covers} rows are where {release.min_rows} must be"
    if "columns" in besides:
        return ", which products or coordinates are that determine them up to rotation"
    if "rows" in besides:
        return f", which {release.n_columns} numbers or more of a row are"
    return f", which {release.numbers} numbers are of {release.n_rows} × {release.n_columns}"
