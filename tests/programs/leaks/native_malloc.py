"""Memory from malloc that is never freed."""

import ctypes

import torch  # noqa: F401

CASE_ID = "native_malloc"
LEAKS = True
CULPRIT = 'native'
FIX = 'free it'


libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p


def steps(n):
    for _ in range(n):
        libc.malloc(64 * 1024)
        yield
