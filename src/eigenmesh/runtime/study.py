"""Studies: what a site consents to, a schedule with its parameters bound and who takes part.

A study is written in one canonical form, whose digest is its name. A host builds the schedule from
its own register, never from the wire, and follows it with a `Guard`: a request that is not next in
it is refused before anything is computed.
"""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from eigenmesh.errors import EigenmeshError, InputError, StepRefused
from eigenmesh.runtime import records
from eigenmesh.runtime.ledger import Ledger
from eigenmesh.runtime.party import Step
from eigenmesh.runtime.protocol import Protocol, protocol_named
from eigenmesh.runtime.schedule import (
    NOWHERE,
    START,
    Node,
    Own,
    Parties,
    Places,
    Positions,
    Program,
    Scope,
    TableRow,
    forecast,
    kinds_in,
    table,
)
from eigenmesh.runtime.topology import TREE, USUAL_TOLERANCE
from eigenmesh.safe_files import write_whole

_LONGEST = 16_000_000  # bytes of a study; a full graph of 1,000 parties has 6 million
_FORM, _FORM_VERSION = "eigenmesh study", 1
_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"))
_FLOAT = "float"  # marks a number that is written by its bits


class Stage(NamedTuple):
    """One run of a protocol, with its arguments: what a fit does, and what a plan forecasts."""

    protocol: Protocol[Any]
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = {}

    def run(self, fed: Any) -> Any:
        """The `Run` of it on a federation."""
        return fed.run(self.protocol, *self.args, **self.kwargs)

    def study(self, scope: Scope) -> Study:
        """What the parties of a run are asked to agree to."""
        return Study.of(self.protocol, scope, self.args, self.kwargs)

    def forecast(self, scope: Scope, parties: Parties, most: bool = False) -> Ledger:
        """What it will send, or at `most`."""
        tree = self.study(scope).tree
        assert tree is not None, f"{self.protocol.name} has no schedule"
        return forecast(tree, parties, most)


def stage(protocol: Protocol[Any], *args: Any, **kwargs: Any) -> Stage:
    """A run of `protocol` with these arguments, as `Federation.run` takes them."""
    return Stage(protocol, args, kwargs)


def forecast_stages(
    stages: Iterable[Stage], parties: Parties, split: str, most: bool = False
) -> Ledger:
    """What several runs, one after the other, will send, or at `most`."""
    ledger, scope = Ledger(), parties.scope(split)
    for each in stages:
        ledger.extend(each.forecast(scope, parties, most))
    return ledger


def floats_besides(
    stages: Iterable[Stage], parties: Parties, split: str, fullest: Iterable[Stage] | None = None
) -> int:
    """What these runs may send beyond their forecast, if the data will have it.

    `fullest` are the runs then, where some hang on what those before them came to.
    """
    runs = list(stages)
    usual = forecast_stages(runs, parties, split)
    most = forecast_stages(runs if fullest is None else fullest, parties, split, most=True)
    return most.floats_up + most.floats_down - usual.floats_up - usual.floats_down


@dataclass(frozen=True, eq=False)
class Study:
    """A protocol with what its schedule is made of, for these parties."""

    protocol: Protocol[Any]
    terms: Mapping[str, Any]
    scope: Scope

    @classmethod
    def of(
        cls, protocol: Protocol[Any], scope: Scope, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Study:
        """The study of one run: of the coordinator's arguments those that the schedule takes."""
        if protocol.schedule is None:
            return cls(protocol, {}, scope)
        signature, others, taken = _parameters(protocol)
        bound = signature.bind(None, *args, **kwargs)
        bound.apply_defaults()
        arguments = dict(bound.arguments)
        for name in others:
            arguments.update(arguments.pop(name, {}))
        terms = {name: _term(arguments[name], name) for name in taken if name in arguments}
        return cls(protocol, terms, scope)

    @cached_property
    def tree(self) -> Node | None:
        """The schedule; None if the protocol declares none."""
        schedule = self.protocol.schedule
        return None if schedule is None else schedule(self.scope, **self.terms)

    def is_of(self, names: tuple[str, ...]) -> bool:
        """Whether these are its parties; the hosts of one process compare them once."""
        if vars(self).get("_equal_names") is not names:
            if self.scope.parties != names:
                return False
            vars(self)["_equal_names"] = names
        return True

    @cached_property
    def leaving(self) -> dict[Step, frozenset[str]]:
        """The kinds that leave a party, by step; the hosts of one process look it up once."""
        return {} if self.tree is None else kinds_in(self.tree, self.scope.secure)

    def require_built(self) -> None:
        """Raise `StepRefused` unless the schedule can be built from what the study says."""
        _ = self._is_built

    @cached_property
    def _is_built(self) -> bool:
        try:
            self.program({})
            return True
        except StepRefused:
            raise
        except Exception as error:  # whatever is wrong with it, a study from outside is refused
            raise StepRefused(f"the study makes no schedule ({type(error).__name__})") from None

    @cached_property
    def document(self) -> bytes:
        """The canonical form."""
        tree: dict[str, Any] = {
            "protocol": self.protocol.name,
            "version": self.protocol.version,
            "terms": {name: records.to_tree(value) for name, value in self.terms.items()},
            "scope": {
                "parties": list(self.scope.parties),
                "split": self.scope.split,
                "on_loss": self.scope.on_loss,
                "max_age": self.scope.max_age,
                "edges": None if self.scope.edges is None else [list(e) for e in self.scope.edges],
            },
        }
        if self.scope.secure:  # others keep the digests that they had before there were masks
            tree["scope"]["secure"] = True
        if self.scope.left_out:
            tree["scope"]["left_out"] = list(self.scope.left_out)
        if self.scope.prepared:
            tree["scope"]["prepared"] = self.scope.prepared
        if self.scope.edges is not None and self.scope.gossips:
            tree["scope"]["averaging"] = self.scope.averaging
            if self.scope.tolerance != USUAL_TOLERANCE:
                tree["scope"]["tolerance"] = self.scope.tolerance
        return _CANONICAL.encode(_written(tree)).encode()

    @cached_property
    def digest(self) -> str:
        """The name of the study."""
        return hashlib.sha256(self.document).hexdigest()

    @cached_property
    def question(self) -> str:
        """What it asks, whoever takes part."""
        agreed = self.as_agreed
        terms = [agreed.protocol.name, {n: records.to_tree(v) for n, v in agreed.terms.items()}]
        return hashlib.sha256(json.dumps(_written(terms), sort_keys=True).encode()).hexdigest()

    @cached_property
    def circle(self) -> str:
        """Who is in it, with which split, and whether sums are masked.

        What it leaves at a site is read by studies of the same circle only: what leaves under masks
        must not be asked for without them, nor with others around.
        """
        scope = self.scope
        words = json.dumps([scope.parties, scope.split, scope.secure, scope.edges is None])
        return hashlib.sha256(words.encode()).hexdigest()

    @cached_property
    def nameless(self) -> Study:
        """Without names of what parties keep, which every fit draws anew."""
        terms = {name: without_names(term) for name, term in self.terms.items()}
        return dataclasses.replace(self, terms=terms)

    @cached_property
    def as_agreed(self) -> Study:
        """Without what a fit finds or draws on its way: gamma, and names of what parties keep.

        It is what people approve, and the same for every fit that `em.study` describes.
        """
        terms = {name: _open_ended(term) for name, term in self.nameless.terms.items()}
        return dataclasses.replace(self, terms=terms)

    def program(self, numbers: Mapping[str, int], is_coordinators: bool = False) -> Program | None:
        """The schedule as far as it is known when these numbers are."""
        if self.tree is None:
            return None
        misses = self.scope.forgiving and not is_coordinators  # else all follow one program
        return _program(self, tuple(sorted(numbers.items())), not misses)


@cache
def _parameters(protocol: Protocol[Any]) -> tuple[inspect.Signature, list[str], list[str]]:
    """Of the coordinator's side; which takes all other names, and which the schedule takes."""
    assert protocol.schedule is not None, "a study is of what a schedule takes"
    signature = inspect.signature(protocol.coordinate)
    kinds = {name: parameter.kind for name, parameter in signature.parameters.items()}
    others = [name for name, kind in kinds.items() if kind is inspect.Parameter.VAR_KEYWORD]
    return signature, others, list(inspect.signature(protocol.schedule).parameters)[1:]


@dataclass(frozen=True, eq=False)
class FitStudy:
    """The studies of all runs of a fit, one after the other.

    `estimator` has the name and the parameters of the estimator whose fit it is, for a dry run at
    a site. Nobody is bound by it: the digest is of the runs.

    >>> import tempfile, eigenmesh as em, numpy as np
    >>> parts = em.Partitioned(rows=[np.ones((100, 3)), np.ones((80, 3))], names=["a", "b"])
    >>> asked, file = em.study(em.MomentPCA(2), parts), tempfile.mkdtemp() + "/study.json"
    >>> asked.save(file)
    >>> em.load_study(file).digest == asked.digest
    True
    """

    runs: tuple[Study, ...]
    estimator: Mapping[str, Any] | None = None

    @property
    def digest(self) -> str:
        """The name of the whole."""
        return fit_digest(self.digests)

    @property
    def digests(self) -> list[str]:
        """The names of its runs."""
        return [run.digest for run in self.runs]

    @property
    def parties(self) -> tuple[str, ...]:
        """Who takes part, in the order that the digest is of."""
        return self.runs[0].scope.parties if self.runs else ()

    def save(self, path: str | Path) -> None:
        """Write it to a file, for the sites' owners to look at and to approve."""
        runs = [json.loads(run.document) for run in self.runs]
        head = {"form": _FORM, "version": _FORM_VERSION, "digest": self.digest}
        tree = {**head, "estimator": self.estimator, "runs": runs}
        write_whole(path, json.dumps(tree, indent=1, ensure_ascii=False).encode() + b"\n")

    def _masks(self, run: Study, row: TableRow) -> bool:
        return run.scope.secure and row.summed

    def __str__(self) -> str:
        names = self.parties
        shown = ", ".join(map(repr, names[:5])) + (", …" if len(names) > 5 else "")
        lines = [f"study {self.digest[:16]} of {len(names)} parties: {shown}"]
        for run in self.runs:
            lines.append(run.protocol.name)
            for row in table(run.tree) if run.tree is not None else ():
                masked = ", masked: all see the sum alone" if self._masks(run, row) else ""
                lines.append(f"  {row}{masked}")
        return "\n".join(lines)


def load_study(path: str | Path) -> FitStudy:
    """The study that `FitStudy.save` wrote to `path`, by this process's register of protocols."""
    path = Path(path)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"the study {path.name!r} cannot be read: {error.strerror}") from None
    try:
        tree = json.loads(data)
        if tree["form"] != _FORM or tree["version"] != _FORM_VERSION:
            raise InputError(
                f"{path.name!r} is a {tree['form']!r} of version {tree['version']}; an "
                f"{_FORM!r} of version {_FORM_VERSION} is expected"
            )
        runs = [json.dumps(run, sort_keys=True, separators=(",", ":")) for run in tree["runs"]]
        study = FitStudy(tuple(map(read_study, runs)), tree["estimator"])
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        if isinstance(error, EigenmeshError):
            raise
        raise InputError(
            f"{path.name!r} is no study; `eigenmesh study`, or save() of em.study(...), writes one"
        ) from None
    if study.digest != tree.get("digest"):
        raise InputError(f"the study {path.name!r} was changed: its runs have another digest")
    return study


def fit_digest(digests: Iterable[str]) -> str:
    """The name of a fit, from those of its runs."""
    return hashlib.sha256("\n".join(digests).encode()).hexdigest()


def without_names(term: Any) -> Any:
    """A record without the names under which parties keep things."""
    return _changed(term, dict.fromkeys(("model", "targets"), ""))


def _open_ended(term: Any) -> Any:
    # Where nothing else names the kernel, having no gamma does.
    named = hasattr(term, "kernel") or getattr(term, "gamma", None) is not None
    return _changed(term, {"gamma": 1.0}) if named else term


def _changed(term: Any, values: Mapping[str, Any]) -> Any:
    if not dataclasses.is_dataclass(term) or isinstance(term, type):
        return term
    own = {name: value for name, value in values.items() if hasattr(term, name)}
    return dataclasses.replace(term, **own) if own else term


@lru_cache(maxsize=64)
def _program(study: Study, numbers: tuple[tuple[str, int], ...], is_coordinators: bool) -> Program:
    assert study.tree is not None
    return Program(study.tree, study.scope, numbers, is_coordinators)


@lru_cache(maxsize=64)  # the hosts of one process share what follows from a study
def read_study(text: str) -> Study:
    """The study that a document describes, by this process's own register of protocols.

    Its schedule is not built yet: that may be work, and is for those whom it concerns.
    """
    try:
        document = text.encode()
        if len(document) > _LONGEST:
            raise StepRefused(f"the study has {len(document):,} bytes, more than {_LONGEST:,}")
        tree = _read(json.loads(document))
        scope = tree["scope"]
        edges = None if scope["edges"] is None else tuple((i, j) for i, j in scope["edges"])
        study = Study(
            protocol_named(tree["protocol"]),
            {name: records.from_tree(value) for name, value in tree["terms"].items()},
            Scope(
                tuple(scope["parties"]),
                scope["split"],
                scope["on_loss"],
                scope["max_age"],
                edges,
                scope.get("secure", False),
                tuple(scope.get("left_out", ())),
                scope.get("prepared", ""),
                scope.get("averaging", TREE),
                scope.get("tolerance", USUAL_TOLERANCE),
            ),
        )
        version = study.protocol.version
        if tree["version"] != version:
            raise StepRefused(
                f"the study is of version {tree['version']!r} of {study.protocol.name!r}, this "
                f"site has version {version}; install the same version of the library everywhere"
            )
        if study.document != document:
            raise StepRefused("the study is not in its canonical form")
        study.scope.require_sound()
        for term in study.terms.values():
            _require_moderate(term)
    except EigenmeshError:
        raise
    except Exception as error:  # whatever is wrong with it, a document from outside is refused
        raise StepRefused(f"the study is malformed ({type(error).__name__})") from None
    return study


def _require_moderate(term: Any) -> None:
    """No number in a study is unending: loops are made of them."""
    values = vars(term).values() if dataclasses.is_dataclass(term) else (term,)
    for value in values:
        if isinstance(value, float) and not math.isfinite(value):
            raise StepRefused("a number of the study is not finite")


def _term(value: Any, name: str) -> Any:
    """A parameter as a study has it: of arrays only the shape."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return tuple(value.shape)
    if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        return tuple(_term(item, name) for item in value)
    if value is None or isinstance(value, bool | int | float | str) or records.is_record(value):
        return value
    raise InputError(f"{name} is a {type(value).__name__}, which cannot be part of a study")


def _written(tree: Any) -> Any:
    """Numbers by their bits, so that one study has one form."""
    if type(tree) is str:  # names of parties, of whom there may be many
        return tree
    if isinstance(tree, float):
        return {_FLOAT: tree.hex()}
    if isinstance(tree, dict):
        return {key: _written(value) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return [_written(item) for item in tree]
    return tree


def _read(tree: Any) -> Any:
    if isinstance(tree, dict):
        if tree.keys() == {_FLOAT}:
            return float.fromhex(tree[_FLOAT])
        return {key: _read(value) for key, value in tree.items()}
    return [_read(item) for item in tree] if isinstance(tree, list) else tree


class Guard:
    """Where a party, or the coordinator, is in a study; `told` are the numbers settled so far."""

    def __init__(self, study: Study, is_coordinators: bool = False) -> None:
        self.study = study
        self.is_coordinators = is_coordinators
        self.may_be_behind = study.scope.forgiving and not is_coordinators
        self.numbers: Mapping[str, int] = {}
        self.positions: Positions = START
        self._settles: Mapping[str, int] = {}  # what will be settled by the request under way
        self._program: tuple[Mapping[str, int], Program | None] = ({}, None)  # by what is settled

    def admit(
        self,
        key: tuple[str, ...],
        numbers: Mapping[str, int],
        owns: Callable[[], Own] | None = None,
    ) -> Places:
        """The places in the schedule that a request fits; refused if there is none.

        A host says what it owns, so that what it is told can be held against it.
        """
        if self.study.tree is None:
            return NOWHERE
        settled = self.numbers if numbers == self.numbers else self._settled(numbers, owns)
        places = self._program_of(settled).matches(self.positions, key)
        if not places:
            raise StepRefused(f"{' '.join(key)} is not what comes next in the study")
        self._settles = settled  # not yet: who refuses a request settles nothing
        return places

    def _program_of(self, settled: Mapping[str, int]) -> Program:
        if self._program[0] is not settled:
            self._program = (settled, self.study.program(settled, self.is_coordinators))
        assert self._program[1] is not None
        return self._program[1]

    def _settled(
        self, numbers: Mapping[str, int], owns: Callable[[], Own] | None
    ) -> dict[str, int]:
        """What was settled, and what is now; a number that was told is not told anew.

        Who missed some rounds hears of several at once, each of which hangs on those before.
        """
        if any(numbers.get(name, number) != number for name, number in self.numbers.items()):
            raise StepRefused("a number that was settled has changed")
        settled = dict(self.numbers)
        fresh = {name: number for name, number in numbers.items() if name not in settled}
        while fresh:
            program = self.study.program(settled, self.is_coordinators)
            awaited = None if program is None else program.awaits(self.positions)
            if awaited is None or not set(awaited.names) <= fresh.keys():
                raise StepRefused(f"{', '.join(sorted(fresh))} cannot be settled now")
            now = {name: fresh.pop(name) for name in awaited.names}
            whole = all(type(number) is int for number in now.values())
            if not whole or not (owns is None or awaited.accepts(owns(), **now)):
                raise StepRefused(f"{', '.join(sorted(now))} cannot be what was told")
            settled |= now
        return settled

    def move(self, places: Places) -> None:
        """On to what comes after the request that was admitted last.

        Where rounds may be missed, the earliest place is enough: from there all others are reached.
        """
        if places:
            self.numbers = self._settles
            self.positions = (places.first if self.may_be_behind else places).after

    def export(self) -> dict[str, Any]:
        """What a restarted host goes on from."""
        return {
            "study": self.study.document.decode(),
            "told": dict(self.numbers),
            "positions": [[pc, list(turns)] for pc, turns in sorted(self.positions)],
        }

    @classmethod
    def restored(cls, exported: Mapping[str, Any]) -> Guard:
        """Where `export` was called."""
        guard = cls(read_study(exported["study"]))
        guard.numbers = dict(exported["told"])
        guard.positions = frozenset((pc, tuple(turns)) for pc, turns in exported["positions"])
        return guard
