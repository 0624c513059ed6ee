"""The exception of a failed attempt refers to a frame that refers to the exception."""

import gc

import torch

CASE_ID = "traceback_of_failure"
LEAKS = True
CULPRIT = 'error'
FIX = 'del error'


def attempt():
    data = torch.zeros(64 * 1024)
    error = None
    try:
        raise RuntimeError(str(data.numel()))
    except RuntimeError as caught:
        error = caught
    return str(error)


def steps(n):
    enabled = gc.isenabled()
    gc.disable()
    try:
        for _ in range(n):
            attempt()
            yield
    finally:
        if enabled:
            gc.enable()
