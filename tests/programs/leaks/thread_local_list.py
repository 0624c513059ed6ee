"""A list in a threading.local."""

import threading

import torch

CASE_ID = "thread_local_list"
LEAKS = True
CULPRIT = 'kept'
FIX = 'empty it'


local = threading.local()


def steps(n):
    local.kept = []
    for _ in range(n):
        local.kept.append(torch.randn(32 * 1024))
        yield
