"""What a party lets out. The host of the party enforces it, at the party's own side."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from eigenmesh.errors import InputError, PolicyRefusal
from eigenmesh.runtime.bounds import Bound, bounds_of
from eigenmesh.runtime.budget import Budget
from eigenmesh.runtime.message import KINDS

APPROVALS = ("each", "listed", "any")
SAME_SUMS = ("data", "question")
_FEWEST_PARTIES = {"domain": 1, "organisations": 3}
_DATA = frozenset({"rows", "columns"})  # what numbers may be, by their content
Protocols = Mapping[str, Mapping[str, Bound]]


@dataclass(frozen=True, init=False)
class Policy:
    """What may leave a party, for which studies, and how much of it.

    Parameters
    ----------
    allow : kinds that may leave; every kind by default. Kinds follow content: numbers over fewer
        than `min_rows` rows are `rows`, and numbers that determine columns up to rotation are
        `columns`, whatever a protocol calls them.
    protocols : the protocols that are answered, by name, each with bounds for its parameters: the
        most, ``(low, high)``, or a list of values. Fields of a setup are named like parameters.
        None, the default, answers every protocol.
    min_rows : the fewest rows behind any number that is not `rows`.
    min_parties : the fewest parties of a study; None is 3 between organisations, 1 in one trust
        domain.
    budget : what all studies together may cost over the life of a data set: `em.Budget`, or a
        mapping of its arguments; no limit by default.
    approve : "any" answers every study that keeps to the rest; "listed" those whose digest is
        among `approved`, or approved at the site; "each" those that a person has approved at the
        site, by `Site.approve`.
    approved : digests of studies, as `em.study` has them.
    same_sum : between organisations, which masked sums are compared by whom they cover. "data": all
        of a data set, whatever is summed; they are over the same parties. "question": those of the
        same parameters, which differ by none or by `min_parties`; then two fits with another gamma,
        of which one has a party less, tell about what that party sent, and so do several fits whose
        parties differ by many.
    calls_per_run : how many times one step may be answered in a run; no limit by default.
        A Gram product asked for with unit vectors, often enough, would extract the Gram matrix.

    Examples
    --------
    >>> Policy(allow={"eigenvectors", "counts"}).forbids({"rows", "counts"})
    ('rows',)
    >>> Policy(protocols={"vfed-pca": {"n_rounds": 20, "n_components": (1, 5)}, "survey": {}})
    Policy(protocols={'vfed-pca': {'n_rounds': at most 20, 'n_components': 1 to 5}, 'survey': {}})
    """

    allow: frozenset[str] = KINDS
    protocols: Protocols | None = field(default=None, hash=False)
    min_rows: int = 5
    min_parties: int | None = None
    budget: Budget | None = None
    approve: str = "any"
    approved: frozenset[str] = frozenset()
    same_sum: str = "data"
    calls_per_run: int | None = None

    def __init__(
        self,
        allow: Iterable[str] = KINDS,
        *,
        protocols: Mapping[str, Mapping[str, Any]] | None = None,
        min_rows: int = 5,
        min_parties: int | None = None,
        budget: Budget | Mapping[str, Any] | None = None,
        approve: str = "any",
        approved: Iterable[str] = (),
        same_sum: str = "data",
        calls_per_run: int | None = None,
    ) -> None:
        if approve not in APPROVALS:
            raise InputError(
                f"approve is {approve!r}; expected one of {', '.join(map(repr, APPROVALS))}"
            )
        if same_sum not in SAME_SUMS:
            raise InputError(f"same_sum is {same_sum!r}; expected 'data' or 'question'")
        values = {
            "allow": _kinds(allow),
            "protocols": None if protocols is None else bounds_of(protocols),
            "min_rows": _whole("min_rows", min_rows),
            "min_parties": _whole("min_parties", min_parties),
            "budget": Budget(**budget) if isinstance(budget, Mapping) else budget,
            "approve": approve,
            "approved": frozenset([approved] if isinstance(approved, str) else approved),
            "same_sum": same_sum,
            "calls_per_run": _whole("calls_per_run", calls_per_run),
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @classmethod
    def from_toml(cls, path: str | Path) -> Self:
        """The policy in a file of the site: the same names, bounds of a range as a table.

        ::

            allow = ["aggregate", "centroids", "counts"]
            min_rows = 10
            approve = "listed"
            approved = ["9f2c…"]

            [budget]
            studies = 50
            numbers = 0.5

            [protocols.diskpca]
            n_landmarks = 200
            gamma = {low = 0.01, high = 1.0}
            kernel = ["rbf", "linear"]
        """
        try:
            tree = tomllib.loads(Path(path).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise InputError(f"the policy {str(path)!r} cannot be read: {error}") from None
        unknown = sorted(tree.keys() - cls.__dataclass_fields__.keys())
        if unknown:
            raise InputError(
                f"the policy {str(path)!r} has {', '.join(map(repr, unknown))}; expected some of "
                f"{', '.join(cls.__dataclass_fields__)}"
            )
        try:
            return cls(**tree)
        except (InputError, TypeError) as error:
            raise InputError(f"the policy {str(path)!r}: {error}") from None

    def to_tree(self) -> dict[str, Any]:
        """Plain words and numbers, for a file."""
        tree = {name: getattr(self, name) for name in self.__dataclass_fields__}
        tree |= {"allow": sorted(self.allow), "approved": sorted(self.approved)}
        tree["budget"] = None if self.budget is None else asdict(self.budget)
        if self.protocols is not None:
            tree["protocols"] = {
                name: {own: bound.plain for own, bound in bounds.items()}
                for name, bounds in self.protocols.items()
            }
        return tree

    @classmethod
    def from_tree(cls, tree: Mapping[str, Any]) -> Self:
        """The policy that `to_tree` gave, or an older version: then every kind was one fewer."""
        if "min_rows" not in tree and KINDS - set(tree["allow"]) == {"columns"}:
            tree = {**tree, "allow": KINDS}
        return cls(**tree)

    def __repr__(self) -> str:
        usual = Policy()
        others = {name: getattr(self, name) for name in self.__dataclass_fields__}
        words = [f"{name}={_shown(v)}" for name, v in others.items() if v != getattr(usual, name)]
        return f"Policy({', '.join(words)})"

    def fewest_parties(self, trust: str) -> int:
        """Of a study, and of a sum."""
        return _FEWEST_PARTIES[trust] if self.min_parties is None else self.min_parties

    @cached_property
    def minds_content(self) -> bool:
        """Whether it matters what numbers are worth: something is forbidden that they may be."""
        return not self.allow >= _DATA

    @cached_property
    def leaves_to_sizes(self) -> bool:
        """Whether words and sizes alone tell what it allows: no person, and nothing spent.

        Nor a bound: the mapping of bounds is its owner's, who may change it.
        """
        others = self.approve != "any" or self.budget is not None
        return self.protocols is None and not others

    def forbids(self, kinds: Iterable[str]) -> tuple[str, ...]:
        """Those of `kinds` that may not leave."""
        return tuple(sorted(set(kinds) - self.allow))

    def check_kinds(self, kinds: Iterable[str], step: str, party: str, why: str = "") -> None:
        """Raise `PolicyRefusal` if one of `kinds` may not leave."""
        if self.allow.issuperset(kinds):  # as nearly always, many times a request
            return
        forbidden = self.forbids(kinds)
        if forbidden:
            raise PolicyRefusal(
                f"party {party!r} refuses step {step!r}: its policy does not let "
                f"{', '.join(map(repr, forbidden))} leave{why} (it allows "
                f"{', '.join(sorted(self.allow)) or 'nothing'})",
                party=party,
                rule="allow",
            )

    def check_calls(self, calls: int, step: str, party: str) -> None:
        """Raise `PolicyRefusal` if a step has been answered often enough in this run."""
        if self.calls_per_run is not None and calls > self.calls_per_run:
            raise PolicyRefusal(
                f"party {party!r} refuses step {step!r}: its policy allows "
                f"{self.calls_per_run} calls of a step in a run",
                party=party,
                rule="calls_per_run",
            )


def _kinds(allow: Iterable[str]) -> frozenset[str]:
    kinds = frozenset([allow] if isinstance(allow, str) else allow)
    unknown = kinds - KINDS
    if unknown:
        raise InputError(
            f"a policy cannot allow {', '.join(map(repr, sorted(unknown)))}; "
            f"the kinds are {', '.join(sorted(KINDS))}"
        )
    return kinds


def _whole(name: str, number: int | None) -> int | None:
    if number is not None and (type(number) is not int or number < 1):
        raise InputError(f"{name} is {number}; a whole number from 1 is expected")
    return number


def _shown(value: Any) -> str:
    return (
        "{" + ", ".join(map(repr, sorted(value))) + "}"
        if isinstance(value, frozenset)
        else (repr(value))
    )
