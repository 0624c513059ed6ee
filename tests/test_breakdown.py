"""What live bytes are for: every storage counted once, under the first category that claims it."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from leakhunter.heap import breakdown as module
from leakhunter.heap.breakdown import breakdown
from leakhunter.heap.graph import captured

# A width that no other test uses, so that the sizes of its tensors are its own.
WIDTH = 1013


@pytest.fixture(scope="module")
def parts():
    net = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH), nn.Sigmoid())
    optimizer = torch.optim.Adam(net.parameters())
    with captured() as heap:
        before = breakdown(heap)["cpu"]
    data = torch.randn(64, WIDTH)
    net(data).mean().backward()
    optimizer.step()
    view = data[1:]
    held = net(data)
    table = {"kept": torch.ones(WIDTH)}
    with captured() as heap:
        after = breakdown(heap)["cpu"]
    assert view is not None
    assert held is not None
    assert table
    return {name: after.get(name, 0) - before.get(name, 0) for name in after}


def test_parameters_and_buffers_were_there_before(parts):
    assert parts[module.PARAMETERS] == 0
    assert parts.get(module.BUFFERS, 0) == 0


def test_gradients_are_as_large_as_the_parameters(parts):
    assert parts[module.GRADIENTS] == 4 * (WIDTH * WIDTH + WIDTH + 2 * WIDTH)


def test_the_optimizer_keeps_two_moments_and_a_step_of_each(parts):
    assert parts[module.OPTIMIZER] == 2 * parts[module.GRADIENTS] + 4 * 4


def test_the_batch_is_an_input_and_counted_once_with_its_view(parts):
    assert parts[module.INPUTS] == pytest.approx(4 * 64 * WIDTH, rel=0.01)


def test_what_is_saved_of_the_layers_are_activations(parts):
    # The result of the linear layer, that of the sigmoid, and mean and inverse deviation of the batch norm.
    assert parts[module.ACTIVATIONS] == pytest.approx(4 * (2 * 64 * WIDTH + 2 * WIDTH), rel=0.01)


def test_the_rest_is_other(parts):
    assert parts[module.OTHER] >= 4 * WIDTH
