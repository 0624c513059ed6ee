"""The container is a global of a module that the loop only calls."""

import sys
import types

import torch

CASE_ID = "global_of_other_module"
LEAKS = True
CULPRIT = 'archive'
FIX = 'empty it'


helper = types.ModuleType("tests_programs_helper")
sys.modules["tests_programs_helper"] = helper
exec(
    "archive = []\ndef keep(x):\n    archive.append(x)\n",
    helper.__dict__,
)


def steps(n):
    helper.archive.clear()
    for _ in range(n):
        helper.keep(torch.randn(32 * 1024))
        yield
