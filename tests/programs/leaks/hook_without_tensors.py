"""Hooks pile up that hold no tensor at all."""

from torch import nn

CASE_ID = "hook_without_tensors"
LEAKS = True
CULPRIT = '_forward_pre_hooks'
FIX = 'handle.remove()'


def attach(net, number):
    history = [number] * 40

    def hook(module, args):
        history[0] = number

    net.register_forward_pre_hook(hook)


def steps(n):
    net = nn.Linear(4, 4)
    for i in range(n):
        for k in range(4):
            attach(net, i * 4 + k)
        yield
