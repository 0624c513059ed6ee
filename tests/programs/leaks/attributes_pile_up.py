"""A new attribute is set in every step."""

import torch

CASE_ID = "attributes_pile_up"
LEAKS = True
CULPRIT = 'holder'
FIX = 'a dict that is emptied'


class Holder:
    pass


def steps(n):
    holder = Holder()
    for i in range(n):
        setattr(holder, f"result_{i}", torch.randn(32 * 1024))
        yield
