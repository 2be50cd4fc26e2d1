"""`record` keeps every promise of a frozen, slotted dataclass: compared with `dataclasses` itself, class by class."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from dataclasses import KW_ONLY, FrozenInstanceError, field, fields, replace
from functools import cached_property

import pytest

from flowrun.core.record import record


@record
class Nothing:
    pass


@record
class One:
    value: float


@record
class Many:
    """Each kind of field."""

    a: int
    b: str = "b"
    made: list[int] = field(default_factory=list)
    silent: int = field(default=0, repr=False, compare=False)
    later: int = field(init=False, default=7)
    _: KW_ONLY
    keyword: bool = False

    def __post_init__(self) -> None:
        if self.a < 0:
            raise ValueError("a must not be negative")


@record
class Derived(Many):
    """Adds a field; the base's are kept."""

    own: str = "own"


@record(slots=False)
class Caching:
    """With a dictionary, for cached properties."""

    n: int

    @cached_property
    def doubled(self) -> int:
        return self.n * 2


@record(eq=False)
class ByIdentity:
    """Two are never equal."""

    n: int


@record(frozen=False, kw_only=True)
class Mutable:
    """Its attributes may be assigned."""

    n: int
    made: list[int] = field(default_factory=list)


@record
class OwnMethods:
    """Its own methods are not replaced."""

    n: int

    def __repr__(self) -> str:
        return "mine"

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 4


TWIN = dataclasses.make_dataclass(
    "Many",
    [
        ("a", int),
        ("b", str, "b"),
        ("made", list, field(default_factory=list)),
        ("silent", int, field(default=0, repr=False, compare=False)),
        ("later", int, field(init=False, default=7)),
        ("keyword", bool, field(default=False, kw_only=True)),
    ],
    frozen=True,
    slots=True,
)


def test_it_answers_as_a_dataclass_does() -> None:
    for arguments in ({"a": 1}, {"a": 2, "b": "x", "made": [1]}, {"a": 3, "keyword": True, "silent": 9}):
        mine, theirs = Many(**arguments), TWIN(**arguments)  # type: ignore[arg-type]
        assert repr(mine) == repr(theirs)
        assert dataclasses.astuple(mine) == dataclasses.astuple(theirs)
    assert [f.name for f in fields(Many)] == [f.name for f in fields(TWIN)]
    assert Many.__match_args__ == TWIN.__match_args__  # type: ignore[attr-defined]


def test_equality_and_hash_go_by_the_compared_fields_and_the_class() -> None:
    assert Many(1, silent=1) == Many(1, silent=2)
    assert Many(1) != Many(2)
    assert Derived(1) != Many(1)
    assert One(1.0) == One(1.0)
    assert hash(One(1.0)) == hash(One(1.0))
    assert Nothing() == Nothing()
    assert hash(Nothing()) == hash(Nothing())
    assert ByIdentity(1) != ByIdentity(1)
    nan = float("nan")
    assert One(nan) == One(nan)  # one object, as in tuples
    assert One(1.0).__eq__(1.0) is NotImplemented


def test_assignment_and_deletion_are_refused() -> None:
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'b'"):
        Many(1).b = "c"  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError, match="cannot delete field 'b'"):
        del Many(1).b  # type: ignore[misc]


def test_defaults_are_made_anew_and_checks_run() -> None:
    assert Many(1).made is not Many(1).made
    with pytest.raises(ValueError, match="negative"):
        Many(-1)
    with pytest.raises(ValueError, match="negative"):
        replace(Many(1), a=-1)
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'a'"):
        Many()  # type: ignore[call-arg]


@pytest.mark.parametrize(
    "instance", [Nothing(), One(2.0), Many(1, made=[3], keyword=True), Derived(1, own="x"), Caching(4)]
)
def test_copies_and_pickles_are_equal(instance: object) -> None:
    assert pickle.loads(pickle.dumps(instance)) == instance
    assert copy.copy(instance) == copy.deepcopy(instance) == instance


def test_slots_unless_refused() -> None:
    assert not hasattr(Many(1), "__dict__")
    assert not hasattr(Derived(1), "__dict__")
    assert Caching(4).doubled == 8


def test_own_methods_stay() -> None:
    assert repr(OwnMethods(1)) == "mine"
    assert hash(OwnMethods(1)) == 4
    assert OwnMethods(1) == OwnMethods(2)
    assert Derived(1, own="x").own == "x"
    assert repr(Derived(1)).startswith("Derived(a=1, ")


def test_a_mutable_record_is_assigned_to_and_has_no_hash() -> None:
    counted = Mutable(n=1)
    counted.n = 2
    assert counted == Mutable(n=2)
    assert not hasattr(counted, "__dict__")
    with pytest.raises(TypeError, match="unhashable"):
        hash(counted)
    with pytest.raises(TypeError, match="positional"):
        Mutable(1)  # type: ignore[call-arg]


def test_a_class_that_is_derived_before_any_instance_is_made_initialises_both() -> None:
    @record
    class Base:
        a: int

    class Child(Base):
        def __init__(self, a: int) -> None:
            super().__init__(a + 1)

    assert [Child(1).a, Child(2).a, Base(4).a] == [2, 3, 4]
