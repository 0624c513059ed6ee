"""The CUDA allocator's own history in a probe: what is read from it, and that it is left as it was found.

Snapshots made up here need no CUDA. The rest runs programs in fresh processes where CUDA works; each fills `out`,
which comes back.
"""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import textwrap
from collections.abc import Callable
from typing import Any

import on_cuda
import pytest
import torch

from leakhunter import findings
from leakhunter.origin import library_folders
from leakhunter.probe import cuda_history
from leakhunter.probe.cuda_history import Block, History, read, stack_of

HERE = pathlib.Path(__file__).resolve().parent
USER, OTHER = "/home/someone/train.py", "/home/someone/model.py"
LIBRARY = os.path.join(os.path.dirname(torch.__file__), "nn", "modules", "module.py")


# ---- snapshots made up


def living(address: int, size: int = 512, **more: Any) -> dict[str, Any]:
    return {"address": address, "size": size, "requested_size": size - 12, "state": "active_allocated", **more}


def segment(*blocks: dict[str, Any], address: int = 1000, **more: Any) -> dict[str, Any]:
    return {"address": address, "blocks": list(blocks), **more}


def alloc(address: int, microseconds: int) -> dict[str, Any]:
    return {"action": "alloc", "addr": address, "time_us": microseconds}


def frame(file: str, line: int = 1, name: str = "f") -> dict[str, Any]:
    return {"filename": file, "line": line, "name": name}


def blocks_of(snapshot: dict[str, Any], step_at: Callable[[int], int | None] = lambda time: time // 100) -> list[Block]:
    return list(read(snapshot, step_at))


@pytest.mark.parametrize(
    "snapshot",
    [{}, {"segments": []}, {"device_traces": []}, {"device_traces": [[]], "segments": [segment()]}],
    ids=["nothing", "no segments", "no devices", "no blocks"],
)
def test_a_snapshot_with_nothing_in_it_has_no_blocks(snapshot):
    assert blocks_of(snapshot) == []


def test_a_block_has_its_size_device_step_stack_and_pool():
    snapshot = {
        "device_traces": [[], [alloc(1000, 730)]],
        "segments": [segment(living(1000, frames=[frame(USER, 7, "train")]), device=1, segment_pool_id=(0, 3))],
    }
    (block,) = blocks_of(snapshot)
    assert block == Block(1000, 500, 1, 7, (findings.Frame(USER, 7, "train"),), (0, 3))


def test_what_is_missing_has_a_plain_value():
    (block,) = blocks_of({"segments": [segment({"size": 512, "state": "active_allocated"})]})
    assert block == Block(1000, 512, 0, None, (), (0, 0))


def test_keys_and_actions_that_are_not_known_are_ignored():
    entry = {**alloc(1000, 300), "compile_context": "N/A", "stream": 0, "of the future": object()}
    others = [
        {"action": "segment_alloc", "addr": 1000, "time_us": 900},
        {"action": "snapshot", "time_us": 900},
        {"action": "oom", "size": 5, "device_free": 3, "time_us": 900},
        {"action": "annotate", "addr": 1000, "user_metadata": "weights", "time_us": 900},
        {"time_us": 900},
    ]
    snapshot = {
        "allocator_settings": {},
        "host_traces": [[alloc(1000, 900)]],
        "device_traces": [[*others, entry, *others]],
        "segments": [segment(living(1000, user_metadata="weights"), is_expandable=True)],
    }
    assert [block.step for block in blocks_of(snapshot)] == [3]


def test_only_blocks_in_use_are_listed():
    states = ["active_allocated", "inactive", "active_awaiting_free", "active_pending_free"]
    blocks = [{**living(1000 + 512 * i), "state": state} for i, state in enumerate(states)]
    assert [block.address for block in blocks_of({"segments": [segment(*blocks, {"size": 512})]})] == [1000]


def test_blocks_without_an_address_follow_each_other():
    blocks = [living(0, size) for size in (512, 1024, 512)]
    for block in blocks:
        del block["address"]
    blocks[1]["state"] = "inactive"
    snapshot = {"device_traces": [[alloc(1000, 100), alloc(2536, 200)]], "segments": [segment(*blocks)]}
    assert [(block.address, block.step) for block in blocks_of(snapshot)] == [(1000, 1), (2536, 2)]


def test_an_address_used_again_has_the_step_of_its_last_birth():
    trace = [alloc(1000, 100), {"action": "free_completed", "addr": 1000, "time_us": 250}, alloc(1000, 400)]
    assert [b.step for b in blocks_of({"device_traces": [trace], "segments": [segment(living(1000))]})] == [4]


def test_a_block_whose_birth_has_no_time_has_no_step():
    entry = alloc(1000, 100)
    del entry["time_us"]
    snapshot = {"device_traces": [[entry, alloc(5000, 100)]], "segments": [segment(living(1000), living(2000))]}
    assert [block.step for block in blocks_of(snapshot)] == [None, None]


def test_several_devices_have_a_trace_each():
    snapshot = {
        "device_traces": [[alloc(1000, 100)], [alloc(9000, 200)], []],
        "segments": [
            segment(living(1000), device=0),
            segment(living(9000), address=9000, device=1),
            segment(living(20_000), address=20_000, device=2),
        ],
    }
    assert [(block.device, block.step) for block in blocks_of(snapshot)] == [(0, 1), (1, 2), (2, None)]


@pytest.mark.parametrize(
    ("pool", "kind"),
    [
        ((0, 0), "block without a tensor"),
        ((0, 1), "CUDA graph pool"),
        ([4, 0], "CUDA graph pool"),
        (None, "block without a tensor"),
    ],
)
def test_a_block_says_whose_pool_it_is_from(pool, kind):
    more = {} if pool is None else {"segment_pool_id": pool}
    (block,) = blocks_of({"segments": [segment(living(1000), **more)]})
    assert block.kind == kind


def test_a_stack_has_the_users_frames_only():
    ours = cuda_history.__file__
    stack = stack_of([frame(ours), frame(LIBRARY), frame(USER, 3, "loss"), frame(LIBRARY), frame(OTHER, 5, "run")])
    assert [(f.file, f.line, f.function) for f in stack] == [(USER, 3, "loss"), (OTHER, 5, "run")]


def test_a_stack_without_a_user_has_the_innermost_frame_of_a_library():
    outer = os.path.join(library_folders()[0], "outer.py")
    assert [f.file for f in stack_of([frame(cuda_history.__file__), frame(LIBRARY), frame(outer)])] == [LIBRARY]
    assert stack_of([frame(cuda_history.__file__)]) == ()
    assert stack_of([]) == ()


def test_a_deep_stack_is_cut_at_its_outer_end():
    stack = stack_of([frame(USER, line) for line in range(100)])
    assert [f.line for f in stack] == list(range(cuda_history.DEEPEST))


def test_frames_may_lack_what_they_have_today():
    assert stack_of([{"filename": USER}]) == (findings.Frame(USER, 0, ""),)
    assert stack_of([{}]) == ()


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("??", "torch::unwind::unwind()"),
        ("", "at::detail::empty_cuda(c10::ArrayRef<long>)"),
        ("RegisterCUDA_0.cpp", "wrapper"),
        ("/build/Python-3.11.7/Objects/call.c", "_PyObject_MakeTpCall"),
        ("/usr/include/c++/13/functional", "std::function<void ()>::operator()"),
        ("/opt/lib/libpython3.11.so.1.0", "Py_RunMain"),
        ("./csu/../csu/libc-start.c", "__libc_start_main_impl"),
    ],
)
def test_frames_of_c_are_nobodys(file, name):
    assert [f.line for f in stack_of([frame(file, 99, name), frame(USER, 3), frame(file, 98, name)])] == [3]
    assert stack_of([frame(file, 99, name)]) == ()


@pytest.mark.parametrize("file", [USER, "/home/someone/bin/train", "<stdin>", "<ipython-input-3>", "C:\\train.py"])
def test_frames_of_python_are_not_taken_for_c(file):
    assert [f.file for f in stack_of([frame(file, 1, "<module>")])] == [file]


def test_code_that_torch_compile_wrote_is_not_the_users(monkeypatch):
    generated = "/home/someone/cache/ab/cabcdef.py"
    assert [f.file for f in stack_of([frame(generated), frame(USER)])] == [generated, USER]
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "/home/someone/cache")
    assert [f.file for f in stack_of([frame(generated), frame(USER)])] == [USER]


def test_a_time_is_of_the_step_that_had_begun():
    history = History()
    assert history._step_at(5) is None
    history._marks = [(100, 8), (200, 9), (300, 10)]
    assert [history._step_at(time) for time in (99, 100, 199, 200, 299, 300, 10**9)] == [None, 8, 8, 9, 9, 10, 10]


def test_there_is_nothing_to_arm_while_cuda_is_not_in_use(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    assert not cuda_history.can_arm()


@pytest.mark.parametrize(
    ("backend", "capturing", "can"), [("native", 0, 1), ("native", 1, 0), ("cudaMallocAsync", 0, 0)]
)
def test_when_there_is_a_history_to_use(monkeypatch, backend, capturing, can):
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch._C, "_cuda_memorySnapshot", dict, raising=False)
    monkeypatch.setattr(torch.cuda, "get_allocator_backend", lambda: backend)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: bool(capturing))
    assert cuda_history.can_arm() == bool(can)


@pytest.mark.parametrize(("traces", "on"), [([], False), ([[], []], False), ([[], [alloc(1, 1)]], True)])
def test_versions_that_cannot_be_asked_are_asked_for_their_newest_entries(monkeypatch, traces, on):
    monkeypatch.delattr(torch._C, "_cuda_isHistoryEnabled", raising=False)
    monkeypatch.setattr(torch._C, "_cuda_memorySnapshot", lambda *_: {"device_traces": traces}, raising=False)
    assert cuda_history.is_enabled() == on


# ---- on CUDA

BEFORE = """
import gc, json, os, sys, torch
import leakhunter
from leakhunter.probe import cuda_history, dispatch
from leakhunter.probe.cuda_history import History, is_enabled

out = {}

def told(watch):
    keys = "pattern", "meter", "severity", "signature", "first_step", "step"
    return [
        {key: getattr(f, key) for key in keys}
        | {"holder": f.holder.path, "births": f.evidence.births, "state": f.evidence.state}
        | {"sites": [[os.path.basename(frame.file), frame.line, frame.function] for frame in f.site]}
        for f in watch.report.open
    ]

def spied():
    calls, original = [], torch.cuda.memory._record_memory_history
    def record(*arguments, **settings):
        calls.append(settings)
        return original(*arguments, **settings)
    record.__signature__ = cuda_history.inspect.signature(original)
    torch.cuda.memory._record_memory_history = record
    return calls
"""


Run = Callable[..., dict[str, Any]]


@pytest.fixture
def run(tmp_path) -> Run:
    """Run a program where CUDA works; what it put in `out`, and in `lines` where its comments `# name` are."""
    def result(code: str, **variables: str) -> dict[str, Any]:
        source = BEFORE + textwrap.dedent(code) + on_cuda.END
        program = tmp_path / "train.py"
        program.write_text(source, encoding="utf-8")
        environment = {**os.environ, **on_cuda.environment(), "PYTHONPATH": str(HERE.parent), **variables}
        done = subprocess.run(
            [sys.executable, str(program)], capture_output=True, text=True, timeout=120, env=environment, check=False
        )
        assert done.returncode == 0, done.stderr
        lines = {
            line.split("  # ")[1]: number for number, line in enumerate(source.splitlines(), 1) if "  # " in line
        }
        return {**json.loads(done.stdout.splitlines()[-1]), "lines": lines, "said": done.stderr}

    return result


# What torch.compile leaves: no dispatch mode may be armed, and the history is all that a probe has.
COMPILED = """
    dispatch.may_arm = lambda: False
"""

LEAK = """
    def train():
        kept = []
        hunt = leakhunter.watch(range(60))
        for _ in hunt:
            x = torch.empty(100_000, device="cuda")  # born
            kept.append(x)  # kept
            out["on"] = out.get("on", 0) + is_enabled()
        return hunt

    torch.empty(1, device="cuda")
    out["found"] = told(train())
    out["after"] = is_enabled()
"""


@pytest.mark.cuda
def test_what_survives_has_its_line_and_step_and_what_was_freed_is_not_listed(run):
    out = run("""
        net = torch.nn.Linear(20, 30).cuda()
        def make():
            return torch.empty(1000, device="cuda")  # make
        old, kept = make(), []
        history = History()
        history.arm(5)
        out["on"] = is_enabled()
        for step in range(5, 8):
            kept.append(make())  # caller
            for _ in range(3):
                torch.empty(3_000_000, device="cuda")
            net.zero_grad()
            net(torch.ones(4, 20, device="cuda")).sum().backward()
            kept += [net.weight.grad, net.bias.grad]
            history.quiet_point(step)
        blocks = history.blocks()
        told = lambda x: [blocks[x.data_ptr()].step, [[f.line, f.function] for f in blocks[x.data_ptr()].stack]]
        out["old"], out["kept"] = told(old), [told(x) for x in kept]
        out["bytes"] = [blocks[x.data_ptr()].bytes for x in kept[:2]]
        out["freed"] = [block.bytes for block in blocks.values()].count(12_000_000)
        with cuda_history.without_inductor():
            trace = torch._C._cuda_memorySnapshot(None)["device_traces"][0]
        out["entries"] = [bool(trace), any(entry.get("frames") for entry in trace)]
        out["inductor"] = "torch._inductor" in sys.modules, "_inductor" in vars(torch)
        history.disarm()
        out["after"], out["remarks"] = is_enabled(), history.remarks
    """)
    site = [[out["lines"]["make"], "make"], [out["lines"]["caller"], "<module>"]]
    assert out["on"]
    assert out["old"] == [None, []]
    assert out["kept"][::3] == [[5, site], [6, site], [7, site]]
    # A thread of the autograd engine allocates those; it has no Python frame.
    assert out["kept"][1::3] == out["kept"][2::3] == [[5, []], [6, []], [7, []]]
    assert out["bytes"] == [4000, 2400]
    assert out["freed"] == 0
    # Stacks are kept with living blocks only: each entry of the trace costs host memory.
    assert out["entries"] == [True, False]
    assert out["inductor"] == [False, False]
    assert (out["after"], out["remarks"]) == (False, [])


@pytest.mark.cuda
def test_a_history_of_the_program_is_used_and_left_as_it_is(run):
    out = run("""
        def make(size):
            return torch.empty(size, device="cuda")  # make
        torch.cuda.memory._record_memory_history(max_entries=64)  # Python and C++ frames, of frees too
        calls = spied()
        old = make(77)
        history = History()
        history.arm(5)
        kept = make(1000)  # caller
        history.quiet_point(5)
        block = history.blocks()[kept.data_ptr()]
        out["block"] = [block.step, [[f.line, f.function] for f in block.stack]]
        history.disarm()
        out["after"], out["calls"], out["remarks"] = is_enabled(), calls, history.remarks
        del kept
        trace = lambda: torch.cuda.memory._snapshot()["device_traces"][0]
        entries = trace()
        out["old"] = [e["action"] for e in entries if e.get("addr") == old.data_ptr() and e["action"] == "alloc"]
        last = [e for e in entries if e["action"] == "free_requested"][-1]
        out["frames of free"] = [frame["name"] for frame in last["frames"]]
        for _ in range(100):
            make(5)
        out["entries"] = len(trace())
    """)
    assert out["block"] == [5, [[out["lines"]["make"], "make"], [out["lines"]["caller"], "<module>"]]]
    assert (out["after"], out["calls"], out["remarks"]) == (True, [], [])
    assert out["old"] == ["alloc"]
    assert "<module>" in out["frames of free"]
    assert any("::" in name for name in out["frames of free"])
    assert out["entries"] == 64


@pytest.mark.cuda
def test_what_others_do_to_the_history_meanwhile(run):
    out = run("""
        record = torch.cuda.memory._record_memory_history
        switch = torch._C._cuda_record_memory_history
        make = lambda: torch.empty(1000, device="cuda")
        make()
        def probe(meanwhile):
            history = History()
            history.arm(1)
            kept = [make()]
            meanwhile()
            kept.append(make())
            history.quiet_point(1)
            on = is_enabled()
            kept.append(make())
            history.quiet_point(2)
            blocks = history.blocks()
            history.disarm()
            steps = [blocks[x.data_ptr()].step for x in kept]
            return [on, steps[-1], history.remarks, is_enabled(), torch._C._cuda_record_memory_history is switch]
        out["off"] = probe(lambda: record(enabled=None))
        out["on"] = probe(lambda: record(max_entries=16))
        for _ in range(50):
            make()
        out["entries"] = len(torch.cuda.memory._snapshot()["device_traces"][0])
        out["its own off"] = probe(lambda: record(enabled=None))
        out["both"] = probe(lambda: [record(), record(enabled=None)])
    """)
    remark = "the CUDA allocator's history was switched off during a probe; it was armed again"
    assert out["off"] == [True, 2, [remark], False, True]
    # The program asked for one of its own: it stays on, and has its settings.
    assert out["on"] == [True, 2, [], True, True]
    assert out["entries"] == 16
    assert out["its own off"] == [True, 2, [remark], False, True]
    assert out["both"] == [True, 2, [remark], False, True]


def check_leak(out: dict[str, Any], function: str = "train") -> dict[str, Any]:
    """One finding, on the loop's own lines, with a birth for each step of the window but the last two."""
    (found,) = out["found"]
    assert found["sites"][0] == ["train.py", out["lines"]["born"], function]
    assert found["holder"] == "kept[*]"
    assert found["state"] == "held"
    steps = [step for step, _ in found["births"]]
    assert len(steps) >= 3
    assert steps == list(range(steps[0], found["step"] - 1))
    assert {count for _, count in found["births"]} == {1}
    return found


@pytest.mark.cuda
def test_a_leaking_loop_has_one_finding_and_the_same_in_every_run(run):
    runs = [
        run(COMPILED + LEAK, PYTHONHASHSEED="1"),
        run(COMPILED + LEAK, PYTHONHASHSEED="2"),
        run(LEAK, PYTHONHASHSEED="3"),
    ]
    found = [check_leak(out) for out in runs]
    assert len({one["signature"] for one in found}) == 1
    assert {one["pattern"] for one in found} == {"LH201"}
    # On in the probe, for some steps only.
    assert all(0 < out["on"] < 30 for out in runs)
    assert not any(out["after"] for out in runs)


@pytest.mark.cuda
def test_the_history_is_off_when_a_loop_ends_in_the_middle_of_a_probe(run):
    out = run("""
        def train(end):
            kept, on = [], 0
            for _ in leakhunter.watch(range(60)):
                kept.append(torch.empty(100_000, device="cuda"))
                on += is_enabled()
                if on == 2:
                    out["armed"].append(len(dispatch._modes()))
                    if end is StopIteration:
                        break
                    raise end
        out["armed"], out["after"] = [], []
        torch.empty(1, device="cuda")
        for end in (StopIteration, ValueError, KeyboardInterrupt):
            try:
                train(end)
            except end:
                out["raised"] = out.get("raised", 0) + 1
            out["after"].append([is_enabled(), len(dispatch._modes())])
    """)
    assert out["armed"] == [1, 1, 1]
    assert out["raised"] == 2
    assert out["after"] == [[False, 0]] * 3


@pytest.mark.cuda
def test_the_asynchronous_backend_has_no_history_and_does_without(stub):
    out = stub(
        """
        calls = spied()
        def train():
            kept = []
            hunt = leakhunter.watch(range(60))
            for _ in hunt:
                x = torch.empty(100_000, device="cuda")  # born
                kept.append(x)
            return hunt
        torch.empty(1, device="cuda")
        out["backend"], out["can"] = torch.cuda.get_allocator_backend(), cuda_history.can_arm()
        out["found"], out["calls"] = told(train()), calls
        """,
        PYTORCH_CUDA_ALLOC_CONF="backend:cudaMallocAsync",
        PYTORCH_ALLOC_CONF="backend:cudaMallocAsync",
    )
    assert (out["backend"], out["can"], out["calls"]) == ("cudaMallocAsync", False, [])
    assert "error" not in out["said"]
    assert check_leak(out)["meter"] == "cuda:0 allocated"


@pytest.mark.cuda
def test_expandable_segments(stub):
    setting = dict.fromkeys(("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"), "expandable_segments:True")
    kinds = """
    out["kinds"] = [segment["is_expandable"] for segment in torch.cuda.memory._snapshot()["segments"]]
    """
    out = stub(COMPILED + LEAK + kinds, **setting)
    assert set(out["kinds"]) == {True}
    assert check_leak(out)["meter"] == "cuda:0 allocated"
    assert not out["after"]


@pytest.mark.cuda
def test_blocks_that_belong_to_no_tensor_are_told_by_their_kind(run):
    out = run("""
        def plain(x):
            torch.cuda.caching_allocator_alloc(4_000_000)  # plain
        pool = torch.cuda.MemPool()
        def pooled(x):
            with torch.cuda.use_mem_pool(pool):
                torch.cuda.caching_allocator_alloc(4_000_000)  # pooled
        def captured(x):
            with torch.cuda.graph(torch.cuda.CUDAGraph()):
                y = x * 2
                torch.cuda.caching_allocator_alloc(4_000_000)  # captured
        def train(step):
            x = torch.ones(1000, device="cuda")
            hunt = leakhunter.watch(range(50))
            for _ in hunt:
                step(x)
            return [f for f in told(hunt) if f["meter"] == "cuda:0 allocated"]
        for step in (plain, pooled, captured):
            out[step.__name__] = train(step)
    """)
    kinds = {
        "plain": ("LH909", "native: block without a tensor"),
        "pooled": ("LH907", "native: MemPool"),
        "captured": ("LH906", "native: private pool of CUDA graphs"),
    }
    for name, kind in kinds.items():
        (found,) = out[name]
        assert (found["pattern"], found["holder"]) == kind
        assert found["state"] == "native"
        assert found["sites"][0] == ["train.py", out["lines"][name], name]
        assert {count for _, count in found["births"]} == {1}
        assert len(found["births"]) >= 3


@pytest.mark.cuda
def test_workspaces_of_cublas_are_a_note_and_told_as_such(run):
    out = run("""
        a = torch.ones(64, 64, device="cuda")
        hunt = leakhunter.watch(range(30))
        for _ in hunt:
            with torch.cuda.stream(torch.cuda.Stream()):
                a @ a  # multiplied
        out["found"] = [[f.pattern, f.severity, f.holder.path, f.site[0].line] for f in hunt.report.findings]
    """)
    assert ["LH908", "note", "native: cuBLAS workspaces", out["lines"]["multiplied"]] in out["found"]


def test_the_size_of_a_workspace_is_what_the_environment_says(monkeypatch):
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":16:8:4096:2")
    assert cuda_history.workspace_sizes() == {(16 * 8 + 4096 * 2) * 1024}
    for odd in ("", "nonsense", ":16", ":16:x"):
        monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", odd)
        assert cuda_history.workspace_sizes() == {cuda_history.CUBLAS, cuda_history.CUBLAS_HOPPER}


@pytest.mark.cuda
def test_nothing_is_armed_while_a_graph_is_being_captured(run):
    out = run("""
        calls, kept = spied(), []
        x, graph = torch.ones(100_000, device="cuda"), torch.cuda.CUDAGraph()
        def steps(count, make):
            on = 0
            for _ in range(count):
                kept.append(make())
                hunt.step()
                on += is_enabled() or bool(dispatch._modes())
            return on
        with leakhunter.watch() as hunt:
            out["on"] = [steps(20, lambda: torch.empty(100_000, device="cuda"))]
            with torch.cuda.graph(graph):
                out["on"].append(steps(60, lambda: x * 2))
            out["calls"] = [len(calls)]
            out["on"].append(steps(60, lambda: torch.empty(200_000, device="cuda")))
        graph.replay()
        out["calls"].append(len(calls))
        out["after"] = is_enabled()
    """)
    assert out["on"][:2] == [0, 0]
    assert out["calls"][0] == 0
    # The same growth later is probed.
    assert out["on"][2] > 0
    assert out["calls"][1] > 0
    assert "error" not in out["said"]
    assert not out["after"]


@pytest.mark.cuda
def test_several_devices(stub):
    out = stub(
        COMPILED
        + """
    def train():
        kept = []
        hunt = leakhunter.watch(range(60))
        for _ in hunt:
            torch.empty(100_000, device="cuda:0")
            x = torch.empty(100_000, device="cuda:2")  # born
            kept.append(x)
        return hunt
    history, kept = History(), []
    for device in range(3):
        torch.empty(1, device=device)
    history.arm(1)
    for step in (1, 2, 3):
        kept.append(torch.empty(1000, device=step - 1))
        history.quiet_point(step)
    blocks = history.blocks()
    history.disarm()
    out["blocks"] = [[blocks[x.data_ptr()].device, blocks[x.data_ptr()].step] for x in kept]
    out["found"] = told(train())
    """,
        STUBGPU_DEVICES="3",
    )
    assert out["blocks"] == [[0, 1], [1, 2], [2, 3]]
    assert check_leak(out)["meter"] == "cuda:2 allocated"
