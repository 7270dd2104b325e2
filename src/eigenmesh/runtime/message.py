"""Messages: frozen dataclasses of arrays and scalars that state what their receiver learns.

A protocol file declares its messages with annotations only; the checks in them are applied where
a message leaves and again where it arrives::

    class LocalSpectrum(Message, reveals="eigenvectors"):
        n_samples: Annotated[int, Reveals("counts"), SameEverywhere]
        vectors: Annotated[Floats, Shape("n_samples", "r"), Orthonormal]
        values: Annotated[Floats, Shape("r"), Descending, NonNegative]

A letter or name in `Shape` stands for one size throughout the message; where an integer field has
that name, it is that field's value. An axis may be an expression of such names, "q*(q+1)//2".
An array marked `Compact("bits")` travels in as many bits as the field of that name says, of all
columns or of each its own; one marked `OnGrid` as short as its numbers allow, without loss; and the
upper triangle of a Gram matrix marked `Factored("n_rows")` as a factor, where that field says that
its rows are few.
Arrays and numbers must be finite, always. What a schedule says of the sizes comes as `Limits`.
"""

from __future__ import annotations

import ast
import dataclasses
import math
import operator
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import (
    Annotated,
    Any,
    ClassVar,
    Literal,
    NamedTuple,
    TypeVar,
    Union,
    cast,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

import numpy as np
from numpy.typing import NDArray

from eigenmesh.errors import MessageRefused
from eigenmesh.runtime import compact, gram_form, grid_form, wire
from eigenmesh.runtime.records import record

KINDS = frozenset(
    "rows columns centroids scores eigenvectors distances gram moments sketch seed counts hashes "
    "aggregate".split()
)

Floats = NDArray[np.floating[Any]]
Integers = NDArray[np.integer[Any]]
Numbers = NDArray[np.integer[Any] | np.floating[Any]]
"""What counts as floats, but may travel as whole numbers."""

_DTYPE_KINDS = {Floats: "f", Integers: "iu", Numbers: "fiu"}
_WORDS = {"f": "floats", "iu": "integers", "fiu": "numbers"}
_SCALARS = (int, float, str, bool)
_FLOAT32 = np.dtype(np.float32)
_LARGEST_INT = 2**63  # the wire has no larger ones
_OVERFLOW = (
    ": where the data are finite, powers of them are not; rescale the columns, lower the kernel's "
    "degree or gamma, or convert float32 to float64"
)


@dataclass(frozen=True)
class Reveals:
    """The kind of one field, where it is not the kind of the whole message."""

    kind: str

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise TypeError(f"a field reveals {self.kind!r}, which is none of {sorted(KINDS)}")


_OPERATORS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
}


@dataclass(frozen=True)
class Compact:
    """Marks an array that may travel in fewer bits: the field that says how many.

    That is an integer, or an array of them, one a column.
    """

    bits: str


@dataclass(frozen=True)
class Factored:
    """Marks the upper triangle of a sum of products of rows: the integer field that counts them."""

    n_rows: str


OnGrid = "on a grid"  # marks an array whose numbers may be whole multiples of a few steps


class Axis:
    """The size of one axis: a number, a name, or an expression of names.

    >>> Axis("q*(q+1)//2").value({"q": 4})
    10
    """

    def __init__(self, text: str | int) -> None:
        self.text = str(text)
        self._tree = ast.parse(self.text, mode="eval").body
        self.names = frozenset(n.id for n in ast.walk(self._tree) if isinstance(n, ast.Name))
        self.is_name = isinstance(self._tree, ast.Name)
        self.value(dict.fromkeys(self.names, 1))  # raises TypeError if it cannot be computed

    def value(self, sizes: Mapping[str, int]) -> int:
        """The size; every name in it must be among `sizes`."""
        return self._value(self._tree, sizes)

    def _value(self, tree: ast.expr, sizes: Mapping[str, int]) -> int:
        match tree:
            case ast.Constant(value=int(number)):
                return number
            case ast.Name(id=name):
                return sizes[name]
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
                return _OPERATORS[type(op)](self._value(left, sizes), self._value(right, sizes))
        raise TypeError(f"a size cannot be {self.text!r}; names, numbers, +, -, * and // are meant")


class Shape:
    """Sizes of an array's axes: numbers, names that stand for one size, or expressions of them."""

    def __init__(self, *axes: str | int) -> None:
        self.axes = tuple(Axis(axis) for axis in axes)

    @property
    def is_derived(self) -> bool:
        """Whether an axis follows from sizes that other fields fix."""
        return any(not axis.is_name and axis.names for axis in self.axes)


class Limit(NamedTuple):
    """What a schedule says of one size: just so much, or at most."""

    size: int
    exact: bool


Limits = Mapping[str, Limit]
NO_LIMITS: Limits = {}


Covered = int | Literal["fewest", "all", "joint"]
"""Rows behind one number of a message: so many, the fewest that the sender's policy lets a sum be
over, all of the sender's, or those of all parties."""

_SINGLE = frozenset("rows columns scores eigenvectors distances sketch hashes".split())


def usually_covered(kind: str | None) -> Covered:
    """Rows behind one number of a kind, unless its message says otherwise."""
    return 1 if kind in _SINGLE else "all"


_NUMBERS = frozenset({int, float})


class Check(NamedTuple):
    """A condition on a field's value, and the words for it."""

    words: str
    holds: Callable[[Any], bool]
    within: Callable[[Any, Any], bool] | None = None  # of numbers off by so much in each column


Descending = Check("must not increase", lambda a: np.ndim(a) > 0 and bool(np.all(np.diff(a) <= 0)))
# Most fields so checked are single numbers, and numpy takes ten times as long to compare one.
NonNegative = Check(
    "must not be negative", lambda a: a >= 0 if type(a) in _NUMBERS else bool((a >= 0).all())
)
Positive = Check(
    "must be positive", lambda a: a > 0 if type(a) in _NUMBERS else bool((a > 0).all())
)
Distinct = Check("must not repeat a number", lambda a: len(np.unique(a)) == np.size(a))
NonEmpty = Check("must not be empty", lambda a: bool(np.size(a)))
# Masked sums of whole numbers are exact, and nobody has to tell how large its own are.
Whole = Check("must be whole numbers", lambda a: np.asarray(a).dtype.kind in "iu")
Orthonormal = Check(
    "must have orthonormal columns",
    lambda a: _is_orthonormal(a),
    lambda a, half_steps: _is_orthonormal(a, half_steps),
)
InBits = Check(f"must be one of {compact.BITS}", lambda bits: bits in compact.BITS)


def no_more_than(limit: int) -> Check:
    """A number that causes work at whoever gets it: a small request must not keep a host busy."""
    return Check(f"must be at most {limit:,}", lambda number: number <= limit)


# Numbers whose sizes differ without bound, as sums of columns in their own units do: masked, each
# takes several words, so that small ones are as exact as large ones.
Wide = "sizes that differ"
SameEverywhere = "same everywhere"  # compared between the parties' replies by the federation


class Fact(str):
    """Marks a number that a party says of itself: every reply must say the same."""


OwnRows, OwnColumns, OwnSquares = Fact("rows"), Fact("columns"), Fact("sum of squares")


class Context(NamedTuple):
    """What is known of a message's sender: the setup, what it was sent, what it said of itself."""

    setup: Any = None
    request: Any = None
    facts: Mapping[str, float] = {}


def _is_orthonormal(vectors: Floats, half_steps: Any = 0.0) -> bool:
    if vectors.ndim != 2 or vectors.shape[0] < vectors.shape[1]:
        return False  # also keeps a claimed width from being multiplied out
    deviation = vectors.T @ vectors - np.eye(vectors.shape[1])
    # (v + e)·(w + f) is v·w and at most ‖e‖ + ‖f‖ + ‖e‖‖f‖, with v and w of length 1.
    off = np.sqrt(len(vectors)) * np.max(half_steps)
    return bool(np.all(np.abs(deviation) < 1e-6 + 2 * off + off * off))


@dataclass_transform(frozen_default=True, eq_default=False)
class Message:
    """Base of all messages. `reveals` is a kind, or None if it tells of nobody's data."""

    reveals: ClassVar[str | None] = None
    is_handed_on: ClassVar[bool] = False  # whether its rows are what other parties gave
    has_single_rows: ClassVar[bool] = False  # whether lines of its arrays are about a row each
    covers: ClassVar[Covered] = "all"
    noised: ClassVar[bool] = False
    steepness: ClassVar[int] = 1  # under masks sizes of its numbers are told so much more coarsely

    def __init_subclass__(
        cls, *, reveals: str | None, covers: Covered | None = None, noised: bool = False
    ) -> None:
        """`covers` are the rows behind one number; of a kind usually the same.

        `noised` says that it is differentially private: noise hides what one row holds.
        """
        if reveals is not None and reveals not in KINDS:
            raise TypeError(f"{cls.__name__} reveals {reveals!r}, which is none of {sorted(KINDS)}")
        if covers is None:
            covers = cls.covers if reveals == cls.reveals else usually_covered(reveals)
        cls.reveals, cls.covers, cls.noised = reveals, covers, noised
        record(dataclasses.dataclass(frozen=True, eq=False)(cls))

    def contradiction(self, context: Context) -> str | None:
        """Why no honest party can have sent this, in words; None where nothing speaks against it.

        What the form of a message rules out, checks do; this is for what hangs on other fields,
        on the study, or on what its sender said before.
        """
        return None

    def rows_for_others(self) -> Any:
        """The rows of it that are handed on from party to party; None if it has none.

        Between organisations they are signed by who gives them (`vouchers`).
        """
        return None

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if isinstance(value, np.generic):  # from a grid of parameters, or from arithmetic
                object.__setattr__(self, name, value.item())


M = TypeVar("M", bound=Message)


class Field(NamedTuple):
    """What a message type declares of one field."""

    name: str
    label: str  # by which errors name it
    type: Any
    optional: bool
    kind: str | None
    shape: Shape | None
    checks: tuple[Check, ...]
    same: bool
    fact: str | None  # what it says of its sender
    dtype_kinds: str  # of an array; empty for a scalar
    bits: str | None = None  # the field that says in how many bits it travels
    is_wide: bool = False  # whether its numbers' sizes differ without bound
    on_grid: bool = False  # whether it travels as short as its numbers allow
    n_rows: str | None = None  # the field that says of how many rows it is a Gram matrix

    @property
    def is_array(self) -> bool:
        """Whether the field holds an array."""
        return bool(self.dtype_kinds)


class _Declared(NamedTuple):
    """What is asked of a message type again and again."""

    fields: tuple[Field, ...]
    in_check_order: tuple[Field, ...]
    names: frozenset[str]
    kinds: tuple[str, ...]
    counted: tuple[tuple[str, str], ...]  # names and kinds of arrays whose numbers count as floats
    to_be_squared: tuple[str, ...]  # whose numbers are real, and no squares themselves
    facts: tuple[
        tuple[str, str], ...
    ]  # names of fields that say something of their sender, and what
    sizes: tuple[tuple[str, bool, bool], ...]  # in check order: is it an array, a whole number?
    is_plain: bool  # whether all fields travel as they are


_declared: dict[type[Message], _Declared] = {}


def _declaration(message_type: type[Message]) -> _Declared:
    if message_type not in _declared:  # annotations can be resolved only after the module is read
        hints = get_type_hints(message_type, include_extras=True)
        names = [f.name for f in dataclasses.fields(cast(Any, message_type))]
        fields = tuple(_field(n, hints[n], message_type) for n in names)
        numbers_first = tuple(sorted(fields, key=_check_order))
        kinds = sorted({field.kind for field in fields if field.kind})
        counted = tuple((f.name, f.kind) for f in fields if f.kind and "f" in f.dtype_kinds)
        is_plain = all(f.bits is None and f.n_rows is None and not f.on_grid for f in fields)
        reals = [f for f in fields if f.type is float or "f" in f.dtype_kinds]
        _declared[message_type] = _Declared(
            fields,
            numbers_first,
            frozenset(names),
            tuple(kinds),
            counted,
            tuple(f.name for f in reals if f.kind != "gram"),
            tuple((f.name, f.fact) for f in fields if f.fact is not None),
            tuple((f.name, f.is_array, f.type is int) for f in numbers_first),
            is_plain,
        )
    return _declared[message_type]


def _check_order(field: Field) -> int:
    """Numbers may be sizes, and plain sizes are needed for derived ones."""
    return 0 if not field.is_array else 2 if field.shape and field.shape.is_derived else 1


def fields_of(message_type: type[Message]) -> tuple[Field, ...]:
    """The declared fields of a message type, in order."""
    return _declaration(message_type).fields


def reals_of(message_type: type[Message]) -> tuple[str, ...]:
    """The fields whose numbers will be squared: they are real, and no sums of squares."""
    return _declaration(message_type).to_be_squared


def facts_of(message_type: type[Message]) -> tuple[tuple[str, str], ...]:
    """The fields in which parties say something of themselves, and what it is."""
    return _declaration(message_type).facts


def _field(name: str, hint: Any, message_type: type[Message]) -> Field:
    marks: tuple[Any, ...] = ()
    if get_origin(hint) is Annotated:
        hint, *rest = get_args(hint)
        marks = tuple(rest)
    optional = False
    if get_origin(hint) in (Union, types.UnionType):
        (hint,) = (arg for arg in get_args(hint) if arg is not type(None))
        optional = True
    if hint not in _DTYPE_KINDS and hint not in _SCALARS:
        raise TypeError(f"{message_type.__name__}.{name} has a type that cannot travel: {hint}")
    kinds = [mark.kind for mark in marks if isinstance(mark, Reveals)]
    shapes = [mark for mark in marks if isinstance(mark, Shape)]
    checks = tuple(mark for mark in marks if isinstance(mark, Check))
    kind = kinds[0] if kinds else message_type.reveals
    same = SameEverywhere in marks
    if hint in _DTYPE_KINDS and (kind is None or same):
        rule = "cannot be the same everywhere, send a hash" if same else "say what it reveals"
        raise TypeError(f"{message_type.__name__}.{name} is an array; {rule}")
    shape = shapes[0] if shapes else None
    fact = next((str(mark) for mark in marks if isinstance(mark, Fact)), None)
    dtypes = _DTYPE_KINDS.get(hint, "")
    label = f"{message_type.__name__}.{name}"
    bits = next((mark.bits for mark in marks if isinstance(mark, Compact)), None)
    n_rows = next((mark.n_rows for mark in marks if isinstance(mark, Factored)), None)
    how = (bits, Wide in marks, OnGrid in marks, n_rows)
    return Field(name, label, hint, optional, kind, shape, checks, same, fact, dtypes, *how)


def kinds_of(message_type: type[Message]) -> frozenset[str]:
    """Every kind that a message of this type reveals."""
    return frozenset(_declaration(message_type).kinds)


def covered_by(message_type: type[Message], kind: str) -> Covered:
    """Rows behind one number of a kind in messages of this type."""
    joint = message_type.covers == "joint"
    own = joint or kind == message_type.reveals
    return message_type.covers if own else usually_covered(kind)


Form = tuple[Any, ...]
"""The type of a message and, of its fields in the order of checks, what is a size: a whole number
itself, of an array its shape, of anything else None. Whether a message is as large as it may be
hangs on that alone."""


def form_of(message: Message) -> Form:
    """The type and the sizes of a message."""
    own = vars(message)
    form: list[Any] = [type(message)]
    for name, is_array, may_count in _declaration(type(message)).sizes:
        value = own[name]
        if is_array:
            form.append(value.shape if isinstance(value, np.ndarray) else None)
        else:
            form.append(value if may_count and type(value) is int else None)
    return tuple(form)


# Parties of one size send messages of one form in each round, and in the rounds of a loop.
_FORMS = 4096
_known_to_fit: set[tuple[Form, tuple[tuple[str, Limit], ...]]] = set()


def _note_that_it_fits(key: tuple[Form, tuple[tuple[str, Limit], ...]]) -> None:
    if len(_known_to_fit) >= _FORMS:
        _known_to_fit.clear()
    _known_to_fit.add(key)


def check(message: Message, limits: Limits = NO_LIMITS) -> None:
    """Raise `MessageRefused` unless every field is as its type declares, and as large as it may."""
    form, own = form_of(message), vars(message)
    key = (form, tuple(limits.items()))
    is_new, sizes = key not in _known_to_fit, dict[str, int]()
    fields = _declaration(type(message)).in_check_order
    for field, size in zip(fields, form[1:], strict=True):
        value = own[field.name]
        if value is None and field.optional:
            continue
        if field.dtype_kinds:
            _check_dtype(field, value)
        else:
            _check_scalar(field, value)
        if is_new:
            _check_size(field, size, sizes, limits)
        if field.dtype_kinds:
            _check_finite(field, value)
        for condition in field.checks:
            if not _holds(condition, field, value, message):
                raise MessageRefused(f"{field.label} {condition.words}")
    if is_new:
        _note_that_it_fits(key)


def check_sizes(form: Form, limits: Limits) -> None:
    """Raise `MessageRefused` unless a message of this form is as large as it may be."""
    key = (form, tuple(limits.items()))
    if not limits or key in _known_to_fit:
        return
    sizes: dict[str, int] = {}
    for field, size in zip(_declaration(form[0]).in_check_order, form[1:], strict=True):
        _check_size(field, size, sizes, limits)
    _note_that_it_fits(key)


def _check_size(field: Field, size: Any, sizes: dict[str, int], limits: Limits) -> None:
    """Hold the next field's size, if it has one, against shapes and schedule."""
    if size is None:
        return
    if field.type is int:
        _fix(field.name, size, sizes, limits, field.label)
    elif field.shape is not None:
        _check_shape(size, field.shape.axes, sizes, limits, field.label)


def sizes_of(message: Message) -> dict[str, int]:
    """The sizes of a message by the names in its shapes."""
    sizes: dict[str, int] = {}
    for field in fields_of(type(message)):
        value = getattr(message, field.name)
        if field.shape is not None and isinstance(value, np.ndarray):
            for axis, size in zip(field.shape.axes, value.shape, strict=False):
                if axis.is_name:
                    sizes.setdefault(axis.text, size)
    return sizes


def _bits(field: Field, message: Message) -> compact.Bits:
    bits: compact.Bits = compact.EXACT if field.bits is None else getattr(message, field.bits)
    return bits


def _holds(condition: Check, field: Field, value: Any, message: Message) -> bool:
    """Whether it holds, or may hold of what was rounded on its way."""
    if condition.within is None:
        return condition.holds(value)
    bits = _bits(field, message)
    if compact.is_exact(bits):
        return condition.holds(value)
    return condition.within(value, compact.half_steps(value, bits))


def _check_dtype(field: Field, value: Any) -> None:
    if not isinstance(value, np.ndarray) or value.dtype.kind not in field.dtype_kinds:
        dtype = getattr(value, "dtype", type(value).__name__)
        expected = _WORDS[field.dtype_kinds]
        raise MessageRefused(f"{field.label} holds {dtype}; an array of {expected} is expected")


def _check_finite(field: Field, value: Numbers) -> None:
    if value.dtype.kind != "f" or math.isfinite(np.vdot(value, value)):
        return  # a sum of squares is finite only if all of them are, and takes half the time
    if not np.isfinite(value).all():
        raise MessageRefused(f"{field.label} holds a value that is not finite{_OVERFLOW}")


def _check_shape(
    shape: tuple[int, ...],
    axes: tuple[Axis, ...],
    sizes: dict[str, int],
    limits: Limits,
    label: str,
) -> None:
    """Hold an array's sizes against the declared ones; the first use of a name fixes its size."""
    fits = len(shape) == len(axes)
    for axis, size in zip(axes, shape, strict=False):
        if axis.is_name:
            fits = fits and size == sizes.get(axis.text, size)
            if fits:
                _fix(axis.text, size, sizes, limits, label)
        else:
            fits = fits and _fits_derived(axis, size, sizes, limits)
    if not fits:
        words = ", ".join(_in_words(axis, sizes) for axis in axes)
        raise MessageRefused(f"{label} has shape {shape}; ({words}) is expected")


def _fix(name: str, size: int, sizes: dict[str, int], limits: Limits, label: str) -> None:
    """Note the size of a name, if the schedule lets it be so large."""
    limit = limits.get(name)
    if limit is not None and (size > limit.size or (limit.exact and size != limit.size)):
        words = "exactly" if limit.exact else "at most"
        raise MessageRefused(f"{label} has {name}={size}; {words} {limit.size} is in the schedule")
    sizes.setdefault(name, size)


def _fits_derived(axis: Axis, size: int, sizes: Mapping[str, int], limits: Limits) -> bool:
    """Whether a size is what an expression comes to, as far as message or schedule tell."""
    stated = {name: limits[name] for name in axis.names if name in limits and name not in sizes}
    if not axis.names <= stated.keys() | sizes.keys():
        return True
    value = axis.value({**{name: limit.size for name, limit in stated.items()}, **sizes})
    return size == value if all(limit.exact for limit in stated.values()) else size <= value


def _in_words(axis: Axis, sizes: Mapping[str, int]) -> str:
    if not axis.names <= sizes.keys() or not axis.names:
        return axis.text
    return f"{axis.text}={axis.value(sizes)}"


def _check_scalar(field: Field, value: Any) -> None:
    label = field.label
    accepted = (int, float) if field.type is float else (field.type,)
    if type(value) not in accepted:
        raise MessageRefused(
            f"{label} is {type(value).__name__}; {field.type.__name__} is expected"
        )
    if field.type is float and not math.isfinite(value):
        raise MessageRefused(f"{label} is {value}; a finite number is expected{_OVERFLOW}")
    # Refused where it arose, by its own party, which says that others may have caused it.
    if field.type is int and not -_LARGEST_INT <= value < _LARGEST_INT:
        raise MessageRefused(f"{label} is {value:.3g}; a number of 64 bits is expected{_OVERFLOW}")


def encode(message: Message, limits: Limits = NO_LIMITS) -> bytes:
    """Check a message and give its wire form."""
    check(message, limits)
    declared = _declaration(type(message))
    if declared.is_plain:
        return wire.dumps({f.name: getattr(message, f.name) for f in declared.fields})
    return wire.dumps({f.name: _to_wire(f, message) for f in declared.fields})


def _to_wire(field: Field, message: Message) -> Any:
    value = getattr(message, field.name)
    if value is not None and field.bits is not None:
        return compact.to_wire(value, _bits(field, message))
    if field.n_rows is not None:
        return gram_form.to_wire(value, getattr(message, field.n_rows))
    return grid_form.to_wire(value) if field.on_grid else value


def decode(message_type: type[M], data: bytes | memoryview, limits: Limits = NO_LIMITS) -> M:
    """Read a message of the type that the receiver expects; the wire does not get to choose."""
    tree, declared = wire.loads(data), _declaration(message_type)
    if not isinstance(tree, dict) or tree.keys() != declared.names:
        names = ", ".join(field.name for field in declared.fields)
        raise MessageRefused(f"a {message_type.__name__} has the fields {names}")
    values = {f.name: _as_declared(f, tree, limits) for f in declared.fields}
    message = message_type(**values)
    check(message, limits)
    return message


def _as_declared(field: Field, tree: Mapping[str, Any], limits: Limits) -> Any:
    value = tree[field.name]
    if field.bits is not None and value is not None:
        bits = tree[field.bits]
        is_number = type(bits) is int and bits in compact.BITS
        if not (is_number or isinstance(bits, np.ndarray)):
            raise MessageRefused(f"{field.label} is in {bits!r} bits, none of {compact.BITS}")
        return compact.from_wire(value, bits)
    if field.on_grid:
        return grid_form.from_wire(value)
    if field.n_rows is not None:
        return gram_form.from_wire(value, _largest_named(field, limits))
    # JSON writes 2.0 and 2 as it likes; the declared type decides.
    return float(value) if field.type is float and type(value) is int else value


def _largest_named(field: Field, limits: Limits) -> int | None:
    """The size by which a field's only axis goes, at most."""
    names = () if field.shape is None else field.shape.axes[0].names
    return next((limits[name].size for name in names if name in limits), None)


def floats_by_kind(message: Message) -> Mapping[str, int]:
    """Array elements per kind; kinds that travel only as scalars, integers or hashes count 0."""
    declared = _declaration(type(message))
    counts = dict.fromkeys(declared.kinds, 0)
    for name, kind in declared.counted:
        value = getattr(message, name)
        if isinstance(value, np.ndarray) and value.ndim:
            counts[kind] += value.size
    return counts


def planned_floats(message_type: type[Message], sizes: Mapping[str, int]) -> dict[str, int]:
    """`floats_by_kind` of a message of these sizes; an optional array without them is absent."""
    counts = dict.fromkeys(_declaration(message_type).kinds, 0)
    for field in fields_of(message_type):
        if not (field.kind and "f" in field.dtype_kinds):
            continue
        assert field.shape is not None, f"{message_type.__name__}.{field.name} has no shape"
        missing = frozenset().union(*(axis.names for axis in field.shape.axes)) - sizes.keys()
        if not missing:
            counts[field.kind] += math.prod(axis.value(sizes) for axis in field.shape.axes)
        elif not field.optional:
            raise TypeError(
                f"the schedule does not say {', '.join(sorted(missing))} of "
                f"{message_type.__name__}.{field.name}"
            )
    return counts


def in_letters(message_type: type[Message]) -> str:
    """What a message reveals, with its floats in the letters of its shapes.

    >>> class ExampleSums(Message, reveals="gram"):
    ...     upper: Annotated[Floats, Shape("q*(q+1)//2")]
    ...     sums: Annotated[Floats, Shape("q")]
    ...     n_rows: Annotated[int, Reveals("counts")]
    >>> in_letters(ExampleSums)
    'counts, gram: q·(q+1)/2 + q'
    """
    sizes: dict[str, list[str]] = {kind: [] for kind in _declaration(message_type).kinds}
    arrays = [f for f in fields_of(message_type) if f.kind and "f" in f.dtype_kinds]
    forms = [field for field in arrays if field.optional]  # of which a message has one
    for field in arrays:
        if field.shape is not None and field not in forms[1:]:
            axes = [axis.text.replace("//", "/").replace("*", "·") for axis in field.shape.axes]
            sizes[str(field.kind)].append(" × ".join(axes))
    return ", ".join(f"{k}: {' + '.join(own)}" if own else k for k, own in sizes.items())


def add(total: M, summand: M) -> M:
    """The field-wise sum of two messages of numbers; refuses arrays of different shape."""
    sums = {}
    for field in fields_of(type(total)):
        left, right = getattr(total, field.name), getattr(summand, field.name)
        if field.dtype_kinds and left.shape != right.shape:
            raise MessageRefused(
                f"{type(total).__name__}.{field.name} has shape {right.shape} where the parties "
                f"before it sent {left.shape}; a sum needs one shape"
            )
        # In float64, whatever they came in: a sum of many would lose digits.
        single = field.dtype_kinds and left.dtype == right.dtype == _FLOAT32
        sums[field.name] = np.add(left, right, dtype=np.float64) if single else left + right
    return type(total)(**sums)


def require_summable(message_type: type[Message]) -> None:
    """Raise TypeError if messages of this type cannot be added up."""
    for field in fields_of(message_type):
        if field.optional or field.same or field.type in (str, bool):
            raise TypeError(f"{message_type.__name__}.{field.name} cannot be summed")
