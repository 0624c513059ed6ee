"""Finished asyncio tasks stay in a set with their results."""

import asyncio

import torch

CASE_ID = "tasks_in_set"
LEAKS = True
CULPRIT = 'tasks'
FIX = 'discard when done'


async def work():
    return torch.randn(32 * 1024)


async def one(tasks):
    task = asyncio.ensure_future(work())
    tasks.add(task)
    await task


def steps(n):
    loop = asyncio.new_event_loop()
    tasks = set()
    for _ in range(n):
        loop.run_until_complete(one(tasks))
        yield
    loop.close()
