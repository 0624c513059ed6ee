"""Slots: what C keeps of an object is read as it is, and nothing that a class defines itself is run."""

from __future__ import annotations

import abc
import collections
import collections.abc
import dataclasses
import enum
import functools
import math
import types
import typing
import warnings
from contextlib import contextmanager

import pytest
import torch
from torch import nn

from leakhunter import slots
from leakhunter.slots import TensorSlots

pytestmark = pytest.mark.usefixtures("settled")


class Plain:
    def __init__(self):
        self.a, self.b = 1, [2]


class Slotted:
    __slots__ = ("a",)


class SlottedWithDict(Slotted):
    def __init__(self):
        self.a, self.b = 1, 2


@dataclasses.dataclass
class Record:
    a: int = 1


@dataclasses.dataclass(frozen=True, slots=True)
class SlottedRecord:
    a: int = 1


class Colour(enum.Enum):
    RED = 1


class Level(enum.IntEnum):
    LOW = 1


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(2, 2)


class Tagged(torch.Tensor):
    pass


class Pair(typing.NamedTuple):
    a: int


class Abstract(abc.ABC):  # noqa: B024
    pass


class Shaped(typing.Protocol):
    a: int


T = typing.TypeVar("T")


class Box(typing.Generic[T]):
    pass


class Failure(ValueError):
    pass


class Outer:
    class Inner:
        pass


KINDS = [
    *(int, type, list, types.ModuleType, torch.Tensor, nn.Parameter, nn.Linear, collections.OrderedDict),
    *(Plain, Slotted, SlottedWithDict, Record, SlottedRecord, Colour, Level, Net, Tagged, Pair, Abstract),
    *(Shaped, Box, Failure, Outer.Inner, type("Made", (Plain, list), {})),
    type(torch.ones(1, requires_grad=True).sum().grad_fn),
]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__qualname__)
def test_what_is_read_of_a_type_and_its_bases_is_what_the_type_says(kind):
    assert slots.mro(kind) == kind.__mro__
    assert slots.type_name(kind) == kind.__name__
    assert slots.qualified_name(kind) == kind.__qualname__
    assert slots.type_module(kind) == kind.__module__
    assert dict(slots.type_dict(kind)) == dict(vars(kind))
    for base in KINDS:
        assert slots.derives(kind, base) == (base in kind.__mro__)
    assert slots.derives(kind, object)
    assert slots.derives(kind, Failure, object)


@pytest.mark.parametrize(
    ("kind", "base"), [(list, collections.abc.Sequence), (Plain, collections.abc.Hashable)]
)
def test_registered_classes_are_no_bases(kind, base):
    assert issubclass(kind, base)
    assert not slots.derives(kind, base)


def test_an_object_is_an_instance_of_its_bases():
    assert slots.is_a(Tagged(), torch.Tensor)
    assert slots.is_a(Net(), int, nn.Module)
    assert not slots.is_a(Net(), int, torch.Tensor)
    assert not slots.is_a(Plain, Plain)


def test_a_type_without_a_module_has_an_empty_one():
    namespace: dict = {"__builtins__": {"type": type}}
    exec("Made = type('Made', (), {})", namespace)
    with pytest.raises(AttributeError):
        namespace["Made"].__module__
    assert slots.type_module(namespace["Made"]) == ""


def test_a_module_that_is_no_text_is_none():
    assert slots.type_module(type("Made", (), {"__module__": property(len)})) == ""


def with_attribute(thing):
    thing.own = [1]
    return thing


def function():
    pass


OBJECTS = {
    "object": Plain(),
    "slots and dict": SlottedWithDict(),
    "dataclass": Record(),
    "enum member": Colour.RED,
    "module of torch": Net(),
    "tensor": with_attribute(torch.ones(2)),
    "parameter": with_attribute(nn.Parameter(torch.ones(2))),
    "subclass of tensor": with_attribute(Tagged()),
    "exception": with_attribute(Failure()),
    "function": with_attribute(function),
    "partial": with_attribute(functools.partial(len)),
    "cached function": functools.lru_cache(function),
    "own dict": with_attribute(type("Own", (dict,), {})()),
    "namespace": types.SimpleNamespace(a=1),
    "module": math,
}


@pytest.mark.parametrize("thing", OBJECTS.values(), ids=OBJECTS)
def test_the_dict_of_an_object_is_its_own(thing):
    assert slots.instance_dict(thing) is thing.__dict__


def test_an_object_without_a_dict_has_an_empty_one():
    for thing in (Slotted(), SlottedRecord(), 1, (), [], object(), Pair(1), len):
        assert slots.instance_dict(thing) == {}


def test_the_namespace_of_a_class_is_not_taken_for_a_dict_of_an_object():
    assert slots.instance_dict(Plain) == {}


def test_a_dict_that_is_of_a_class_of_the_user_is_left_alone():
    thing = Plain()
    thing.__dict__ = type("Own", (dict,), {})(a=1)
    assert slots.instance_dict(thing) == {}


@pytest.mark.parametrize("module", [math, torch, types.ModuleType("own")], ids=lambda module: module.__name__)
def test_the_namespace_of_a_module_is_its_own(module):
    assert slots.module_dict(module) is vars(module)


class Asked(list):
    """Names of what was run of the user's while ``watching``; each of them raises then."""

    watching = False

    def ask(self, name: str) -> None:
        if self.watching:
            self.append(name)
            raise RuntimeError(f"asked for {name}")

    @contextmanager
    def watch(self):
        self.watching = True
        try:
            yield
        finally:
            self.watching = False


SPECIAL = [
    *("__getattribute__", "__hash__", "__eq__", "__repr__", "__str__", "__len__", "__bool__", "__iter__"),
    *("__sizeof__", "__dir__", "__instancecheck__", "__subclasscheck__", "__torch_function__", "__getitem__"),
]
PROPERTIES = ["__class__", "__dict__", "__mro__", "__bases__", "__name__", "__module__"]


def as_in(base: type, name: str, thing: object) -> object:
    """An attribute as ``base`` gives it."""
    for kind in base.__mro__:
        if name in vars(kind):
            found = vars(kind)[name]
            return found.__get__(thing) if hasattr(found, "__get__") else found
    raise AttributeError(name)


def hostile(asked: Asked, base: type, *extra: str) -> type:
    """A subclass of ``base`` that reports whatever is asked of it or of its instances."""

    def method(name):
        def run(this, *arguments, **options):
            asked.ask(name)
            return getattr(base, name)(this, *arguments, **options)

        return run

    def attribute(name):
        return property(lambda this: (asked.ask(name), as_in(base, name, this))[1])

    own = [name for name in SPECIAL if hasattr(base, name) and name != "__torch_function__"]
    body = {name: method(name) for name in own}
    body.update({name: attribute(name) for name in (*PROPERTIES, *extra)})
    if hasattr(base, "__torch_function__"):

        def torch_function(cls, *arguments, **options):
            asked.ask("__torch_function__")
            return super(kind, cls).__torch_function__(*arguments, **options)

        body["__torch_function__"] = classmethod(torch_function)
    kind = type("Hostile", (base,), body)
    return kind


def hostile_type(asked: Asked) -> type:
    """A class whose metaclass reports whatever is asked of the class."""
    return hostile(asked, type)("Odd", (), {})


TYPE_QUESTIONS = {
    "mro": slots.mro,
    "derives": lambda kind: slots.derives(kind, int, torch.Tensor),
    "type_name": slots.type_name,
    "qualified_name": slots.qualified_name,
    "type_module": slots.type_module,
    "type_dict": slots.type_dict,
    "is_a": lambda kind: slots.is_a(kind(), int, torch.Tensor),
    "instance_dict of the class": slots.instance_dict,
    "instance_dict": lambda kind: slots.instance_dict(kind()),
}


@pytest.mark.parametrize("question", TYPE_QUESTIONS.values(), ids=TYPE_QUESTIONS)
def test_nothing_of_a_metaclass_is_run(question):
    asked = Asked()
    kind = hostile_type(asked)
    with asked.watch():
        question(kind)
    assert not asked


def test_a_class_that_cannot_be_hashed_derives_from_its_bases():
    compares = type("Compares", (type,), {"__eq__": lambda cls, other: cls is other})
    kind = compares("Odd", (Plain,), {})
    with pytest.raises(TypeError):
        hash(kind)
    assert slots.derives(kind, Plain)
    assert not slots.derives(kind, int)


@pytest.mark.parametrize("question", [slots.type_name, slots.qualified_name, slots.type_module])
def test_names_that_are_of_a_class_of_the_user_are_not_run(question):
    asked = Asked()
    text = hostile(asked, str)("Odd")
    kind = type(text, (), {"__qualname__": text, "__module__": text})
    with asked.watch():
        answer = question(kind)
        assert type(answer) is str
        assert answer in ("Odd", "")
    assert not asked


@pytest.mark.parametrize("base", [object, dict, list, nn.Module, Exception, types.ModuleType, Plain])
def test_nothing_of_an_object_is_run(base):
    asked = Asked()
    thing = hostile(asked, base)(*(["odd"] if base is types.ModuleType else []))
    with asked.watch():
        assert slots.is_a(thing, base)
        assert not slots.is_a(thing, int)
        slots.instance_dict(thing)
        slots.type_name(type(thing))
        if base is types.ModuleType:
            slots.module_dict(thing)
    assert not asked


def test_a_property_called_dict_does_not_hide_the_dict():
    asked = Asked()
    thing = hostile(asked, Plain)()
    with asked.watch():
        assert slots.instance_dict(thing) == {"a": 1, "b": [2]}
    assert not asked


def test_a_module_that_loads_its_attributes_when_asked_stays_unloaded():
    asked = Asked()
    lazy = hostile(asked, types.ModuleType)("lazy")
    with asked.watch():
        assert slots.module_dict(lazy)["__name__"] == "lazy"
    assert not asked


TENSOR_READERS = {
    "requires_grad": lambda tensor: tensor.requires_grad,
    "grad_fn": lambda tensor: tensor.grad_fn,
    "is_leaf": lambda tensor: tensor.is_leaf,
    "retains_grad": lambda tensor: tensor.retains_grad,
    "grad": lambda tensor: tensor.grad,
    "base": lambda tensor: tensor._base,
    "layout": lambda tensor: tensor.layout,
    "device": lambda tensor: tensor.device,
    "dtype": lambda tensor: tensor.dtype,
    "shape": lambda tensor: tensor.shape,
    "storage": lambda tensor: tensor.untyped_storage()._cdata,
    "uses": lambda tensor: tensor._use_count(),
    "numel": lambda tensor: tensor.numel(),
    "item_size": lambda tensor: tensor.element_size(),
}


def with_grad() -> nn.Parameter:
    parameter = nn.Parameter(torch.ones(2))
    parameter.sum().backward()
    return parameter


TENSORS = {
    "plain": torch.ones(2, 3, dtype=torch.float64),
    "view": torch.ones(4, 4)[1:],
    "parameter with its gradient": with_grad(),
    "result": torch.ones(3, requires_grad=True) * 2,
    "subclass": torch.ones(3).as_subclass(Tagged),
    "meta": torch.ones(3, device="meta"),
}


@pytest.mark.parametrize("tensor", TENSORS.values(), ids=TENSORS)
def test_what_is_read_of_a_tensor_is_what_the_tensor_says(tensor):
    with warnings.catch_warnings():
        # The gradient of a result that retains none.
        warnings.simplefilter("ignore")
        for name, ordinary in TENSOR_READERS.items():
            with torch._C.DisableTorchFunctionSubclass():
                answer = getattr(TensorSlots, name)(tensor)
            expected = ordinary(tensor)
            if name == "storage":
                answer = answer._cdata
            assert answer is expected or (not isinstance(expected, torch.Tensor) and answer == expected), name


def test_nothing_of_a_subclass_of_tensor_is_run():
    asked = Asked()
    names = ("shape", "dtype", "device", "grad", "grad_fn", "requires_grad", "layout")
    kind = hostile(asked, torch.Tensor, *names)
    tensor = torch.ones(2, 3).as_subclass(kind)
    with asked.watch(), torch._C.DisableTorchFunctionSubclass():
        answers = {name: getattr(TensorSlots, name)(tensor) for name in TENSOR_READERS}
        assert slots.is_a(tensor, torch.Tensor)
    assert not asked
    assert tuple(answers["shape"]) == (2, 3)
    assert answers["numel"] == 6
    assert answers["storage"].nbytes() == 24
    assert answers["grad"] is None


def test_every_reader_of_tensors_is_tested():
    assert set(TENSOR_READERS) == {name for name in vars(TensorSlots) if not name.startswith("_")}
