"""A window that is a new list in every step."""

import torch

CASE_ID = "rebuilt_window"
LEAKS = False
CULPRIT = None
FIX = 'none needed'


def steps(n):
    window = []
    for _ in range(n):
        window = [*window[-9:], torch.randn(32 * 1024)]
        torch.stack(window).mean().item()
        yield
