"""What the live bytes of each device are for: parameters, gradients, optimizer state, what autograd saved, the rest."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch

from leakhunter import slots
from leakhunter.heap.graph import Heap, Storage
from leakhunter.probe.cuda_history import Block
from leakhunter.slots import TensorSlots

# A storage belongs to the first of these that claims it.
PARAMETERS = "parameters"
BUFFERS = "buffers"
GRADIENTS = "gradients"
OPTIMIZER = "optimizer state"
INPUTS = "inputs saved for backward"
ACTIVATIONS = "activations saved for backward"
OTHER = "other tensors"
# Workspaces, what operators need while they run, and on the host whatever else lies in malloc.
REST = "not in tensors"


def breakdown(heap: Heap, blocks: Iterable[Block] = ()) -> dict[str, dict[str, int]]:
    """Bytes by device and category; each storage is counted once, and by its kind each block that belongs to none."""
    sizes: dict[str, dict[str, int]] = {}
    claimed = _claims(heap)
    for node in heap.storages.values():
        storage: Storage = heap.objects[node]
        if storage.bytes:
            place = sizes.setdefault(storage.device, {})
            category = claimed.get(node, OTHER)
            place[category] = place.get(category, 0) + storage.bytes
    tensors = {heap.objects[node].data for node in heap.storages.values()}
    for block in blocks:
        if block.address not in tensors:
            place = sizes.setdefault(f"cuda:{block.device}", {})
            place[block.kind] = place.get(block.kind, 0) + block.bytes
    return sizes


def with_remainder(parts: Mapping[str, int], allocated: float) -> dict[str, int]:
    """``parts``, and what they do not explain of the bytes that are allocated."""
    rest = int(allocated) - sum(parts.values())
    return {**parts, REST: rest} if rest > 0 else dict(parts)


def _claims(heap: Heap) -> dict[int, str]:
    """The category of each storage that belongs to one, by node."""
    storages = _storages_of_tensors(heap)
    claimed: dict[int, str] = {}
    for category, tensors in (
        (PARAMETERS, _of_modules(heap, "_parameters")),
        (BUFFERS, _of_modules(heap, "_buffers")),
        (PARAMETERS, (heap.objects[node] for node in heap.tracked_nodes(torch.nn.Parameter))),
        (GRADIENTS, (heap.objects[target] for (_, target), text in heap.labels.items() if text == ".grad")),
        (OPTIMIZER, _of_optimizers(heap)),
        (ACTIVATIONS, (tensor for tensor in _saved(heap) if _is_result(heap, tensor))),
        (INPUTS, _saved(heap)),
    ):
        for tensor in tensors:
            for storage in storages.get(heap.find(tensor), ()):
                claimed.setdefault(storage, category)
    return claimed


def _storages_of_tensors(heap: Heap) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for (source, target), text in heap.labels.items():
        if text == "storage":
            found.setdefault(source, []).append(target)
    return found


def _of_modules(heap: Heap, name: str) -> Iterator[Any]:
    for node in heap.tracked_nodes(torch.nn.Module):
        yield from _tensors(slots.instance_dict(heap.objects[node]).get(name))


def _of_optimizers(heap: Heap) -> Iterator[Any]:
    for node in heap.tracked_nodes(torch.optim.Optimizer):
        state = slots.instance_dict(heap.objects[node]).get("state")
        if slots.is_a(state, dict):
            for values in dict.values(state):  # type: ignore[arg-type]
                yield from _tensors(values)


def _tensors(things: object) -> Iterator[Any]:
    """The tensors in a dict, also in lists and dicts inside it, as some optimizers keep their history."""
    values: Iterable[Any] = ()
    if slots.is_a(things, dict):
        values = dict.values(things)  # type: ignore[arg-type]
    elif slots.is_a(things, list):
        values = list.__iter__(things)  # type: ignore[arg-type]
    for value in values:
        if slots.is_a(value, torch.Tensor):
            yield value
        elif slots.is_a(value, dict, list):
            yield from _tensors(value)


def _saved(heap: Heap) -> Iterator[Any]:
    for (source, target), text in heap.labels.items():
        if text.startswith("saved") and source in heap.sequence and slots.is_a(heap.objects[target], torch.Tensor):
            yield heap.objects[target]


def _is_result(heap: Heap, tensor: Any) -> bool:
    """Whether a saved tensor is a result of autograd, and not the program's own: data, targets, masks.

    What a node saves of its own result is handed out detached, as a tensor that the program does not have.
    """
    with slots.unwatched():
        return heap.find(tensor) >= heap.tracked or TensorSlots.requires_grad(tensor)
