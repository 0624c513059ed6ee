"""Hooks registered in a with block, torch.func grad, vmap, jvp, functional_call each step."""

import contextlib

import torch
from torch import nn

CASE_ID = "hooks_and_transforms"
LEAKS = False
CULPRIT = None
FIX = 'none needed'


@contextlib.contextmanager
def recorded(net, store):
    handles = [m.register_forward_hook(lambda m, i, o, k=k: store.__setitem__(k, o)) for k, m in net.named_modules()]
    try:
        yield store
    finally:
        for h in handles:
            h.remove()


def steps(n):
    net = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 1))

    def loss(params, x):
        return torch.func.functional_call(net, params, (x[None],)).pow(2).mean()

    for _ in range(n):
        params = {k: v.detach() for k, v in net.named_parameters()}
        grads = torch.func.vmap(torch.func.grad(loss), (None, 0))(params, torch.randn(8, 16))
        torch.func.jvp(lambda x: loss(params, x), (torch.randn(16),), (torch.randn(16),))
        with recorded(net, {}) as store:
            net(torch.randn(4, 16)).sum().backward()
        with torch.no_grad():
            for k, v in net.named_parameters():
                v -= 0.01 * grads[k].mean(0)
        net.zero_grad()
        yield
