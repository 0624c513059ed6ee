"""The edges that gc cannot see: tensors to autograd nodes, nodes to what they saved, tensors to storages.

Nothing is unpacked. Reading ``_saved_*`` would run the user's unpack hooks, and under activation checkpointing
recompute the forward; ``_raw_saved_*.data`` hands out the packed object as it lies there.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from typing import Any

import torch

from leakhunter import slots
from leakhunter.heap.graph import Heap, Storage
from leakhunter.slots import TensorSlots

# A graph of more nodes than this is walked in part, and the report says so.
MOST_NODES = 1_000_000
# AccumulateGrad nodes have the largest sequence number there is, so that they run first; it dates nothing.
UNDATED = 2**63


def expand(heap: Heap) -> None:
    """Add autograd nodes, the tensors they saved, and storages to a capture."""
    with slots.unwatched():
        walk = _Walk(heap)
        for node in heap.tracked_nodes(torch.Tensor):
            walk.tensor(node, heap.objects[node])
        for node in heap.tracked_nodes(*_node_types()):
            walk.found(node)
        walk.run()
        for node in heap.tracked_nodes(torch.UntypedStorage):
            walk.storage_object(node, heap.objects[node])
    if walk.truncated:
        heap.remark(
            f"the autograd graph is larger than {MOST_NODES:,} nodes; the rest was not looked at"
        )
    if not walk.sees_saved:
        heap.remark(
            "this PyTorch does not show what autograd nodes saved; bytes held by graphs are unknown"
        )


class _Walk:
    """One pass over tensors and nodes, each visited once."""

    def __init__(self, heap: Heap) -> None:
        self.heap = heap
        self.truncated = False
        self.sees_saved = True
        self._tensors: set[int] = set()
        self._nodes: set[int] = set()
        self._pending: list[int] = []
        self._cpp_references: dict[int, int] = {}
        self._counted = _cpp_references_are_counted()

    def tensor(self, node: int, tensor: torch.Tensor) -> None:
        if node in self._tensors:
            return
        self._tensors.add(node)
        heap = self.heap
        self._storages(node, tensor)
        try:
            if TensorSlots.requires_grad(tensor):
                grad_fn = TensorSlots.grad_fn(tensor)
                if grad_fn is not None:
                    self._autograd_node(node, grad_fn, ".grad_fn")
            if TensorSlots.is_leaf(tensor) or TensorSlots.retains_grad(tensor):
                self._cpp_tensor(node, TensorSlots.grad(tensor), ".grad")
            self._cpp_tensor(node, TensorSlots.base(tensor), "._base")
        except (RuntimeError, NotImplementedError, AttributeError, TypeError):
            # Exotic tensors (functorch wrappers, views changed in place, subclasses) refuse some of these questions.
            heap.remark(f"a {slots.type_name(type(tensor))} could not be read in full")

    def found(self, node: int) -> None:
        """An autograd node that has a Python object."""
        if node not in self._nodes:
            self._nodes.add(node)
            self._pending.append(node)

    def run(self) -> None:
        """Visit all nodes found, and those found on the way."""
        while self._pending:
            if len(self._nodes) > MOST_NODES:
                self.truncated = True
                break
            self._visit(self._pending.pop())
        for node, held in self._cpp_references.items():
            self._explain(node, held)

    def storage_object(self, node: int, storage: torch.UntypedStorage) -> None:
        """A Python object for a storage: the storage itself keeps it, so that it starts no path."""
        if type(storage) is torch.UntypedStorage:
            with contextlib.suppress(RuntimeError, NotImplementedError):
                self._link_storage(node, storage)
            self.heap.explain(node)

    def _visit(self, node: int) -> None:
        heap = self.heap
        autograd_node = heap.objects[node]
        sequence = autograd_node._sequence_nr()
        if sequence < UNDATED:
            heap.sequence[node] = sequence
        for following, _ in autograd_node.next_functions:
            if following is not None:
                self._autograd_node(node, following, "next")
        names = _saved_names(type(autograd_node))
        for name in names:
            try:
                saved = getattr(autograd_node, name)
            except RuntimeError:
                # A custom Function refuses once backward has freed what it saved.
                continue
            if saved is None:
                continue
            for item in saved if isinstance(saved, (tuple, list)) else (saved,):
                if item is not None:
                    self._saved(node, item, name.removeprefix("_raw_saved_"))
        variable = (
            getattr(autograd_node, "variable", None)
            if slots.type_name(type(autograd_node)) == "AccumulateGrad"
            else None
        )
        self._cpp_tensor(node, variable, "variable")

    def _saved(self, node: int, saved: Any, name: str) -> None:
        if not hasattr(saved, "data"):
            self.sees_saved = False
            return
        packed = saved.data
        hook = getattr(saved, "unpack_hook", None)
        label = f"saved {name}"
        if hook is not None:
            found = self.heap.find(hook)
            if found >= 0:
                self.heap.link(node, found, "unpack hook")
                self.heap.explain(found)
                self.heap.unpack_hooks[found] = self.heap.unpack_hooks.get(found, 0) + 1
            if slots.is_a(packed, torch.Tensor):
                # A pack hook's result is held as a Python object, not as a tensor.
                self._python_object(node, packed, label)
                return
        if slots.is_a(packed, torch.Tensor):
            self._cpp_tensor(node, packed, label)
        elif packed is not None:
            self._python_object(node, packed, label)

    def _python_object(self, node: int, thing: Any, label: str) -> None:
        target = self.heap.find(thing)
        if target < 0 and slots.is_a(thing, torch.Tensor):
            target = self.heap.add(thing)
        if target >= 0:
            self.heap.link(node, target, label)
            self.heap.explain(target)
            if slots.is_a(thing, torch.Tensor):
                self.tensor(target, thing)

    def _autograd_node(self, source: int, autograd_node: Any, label: str) -> None:
        heap = self.heap
        target = heap.add(autograd_node)
        heap.link(source, target, label)
        # A custom Function's node is a Python object that C++ holds once, however many edges lead to it.
        heap.explained[target] = 1
        self.found(target)

    def _cpp_tensor(self, source: int, tensor: Any, label: str) -> None:
        if tensor is None:
            return
        target = self.heap.add(tensor)
        self.heap.link(source, target, label)
        self._cpp_references[target] = self._cpp_references.get(target, 0) + 1
        self.tensor(target, tensor)

    def _explain(self, node: int, held: int) -> None:
        """C++ holds one Python reference to a tensor's object; it is explained when every C++ reference is known."""
        uses = TensorSlots.uses(self.heap.objects[node])
        own = 1 if self._counted else 0
        if held >= uses - own:
            self.heap.explain(node)

    def _storages(self, node: int, tensor: torch.Tensor) -> None:
        """Link a tensor to its storages; a wrapper subclass has none, and its inner tensors are attributes."""
        with contextlib.suppress(RuntimeError, NotImplementedError):
            for part in self._parts(tensor):
                self._link_storage(node, TensorSlots.storage(part))

    def _parts(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        """The strided tensors of which a tensor of any layout is made."""
        layout = TensorSlots.layout(tensor)
        if layout is torch.strided:
            return [tensor]
        if layout is torch.sparse_coo:
            return [tensor._indices(), tensor._values()]
        if layout in (torch.sparse_csr, torch.sparse_bsr):
            return [tensor.crow_indices(), tensor.col_indices(), tensor.values()]
        if layout in (torch.sparse_csc, torch.sparse_bsc):
            return [tensor.ccol_indices(), tensor.row_indices(), tensor.values()]
        return []

    def _link_storage(self, node: int, storage: torch.UntypedStorage) -> None:
        device = storage.device
        if device.type == "meta":
            return
        size, data = storage.nbytes(), storage.data_ptr()
        if not data:
            size = 0
        place = "shared memory" if device.type == "cpu" and storage.is_shared() else str(device)
        self.heap.link(node, self.heap.add_storage(Storage(storage._cdata, size, place, data)), "storage")


def _saved_names(kind: Any) -> tuple[str, ...]:
    """Names of the packed values of a node type."""
    # A custom Function is a class of the user's, which no cache of ours may keep.
    if slots.derives(kind, torch._C._FunctionBase):
        return ("_raw_saved_tensors",)
    return _built_in_saved_names(kind)


@functools.cache
def _built_in_saved_names(kind: type) -> tuple[str, ...]:
    # dir() of a node costs more than the whole visit.
    return tuple(name for name in dir(kind) if name.startswith("_raw_saved_"))


@functools.lru_cache(maxsize=1)
def _node_types() -> tuple[type, ...]:
    """The types of autograd nodes that Python code can hold: those of C++ operators, and of custom Functions."""
    names = [getattr(torch._C._functions, name, None) for name in dir(torch._C._functions)]
    return (torch._C._FunctionBase, *(kind for kind in names if isinstance(kind, type)))


@functools.lru_cache(maxsize=1)
def _cpp_references_are_counted() -> bool:
    """Whether C++ holding a tensor adds one to the reference count of its Python object.

    It does in newer versions. In older ones C++ owns the object only after Python has let it go.
    """
    held = torch.zeros(1)
    owner = torch.zeros(1)
    before = sys.getrefcount(held)
    owner.grad = held
    return sys.getrefcount(held) > before
