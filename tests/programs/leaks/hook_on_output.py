"""A hook on a non-leaf tensor closes over that tensor."""

import torch

CASE_ID = "hook_on_output"
LEAKS = True
CULPRIT = 'hook'
FIX = 'bind what is needed'


def watch_gradient(y):
    def hook(grad):
        return grad * (y.detach() > 0)

    y.register_hook(hook)


def steps(n):
    w = torch.randn(64 * 1024, requires_grad=True)
    for _ in range(n):
        y = w * 2
        watch_gradient(y)
        del y
        yield
