"""The stand-in for the CUDA runtime: PyTorch's own allocator on top of it does and counts what it does on a GPU.

Every piece of code runs in a fresh Python, and fills `out`, which comes back. What also holds on a real GPU is tested
there too; the rest asks for `stub`.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable
from typing import Any

import on_cuda
import pytest

MIB, GIB = 2**20, 2**30

pytestmark = pytest.mark.cuda


Run = Callable[..., dict[str, Any]]


def python(code: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, **on_cuda.environment(), **variables},
        check=False,
    )


@pytest.fixture
def run() -> Run:
    """Run code where CUDA works and return what it put in `out`."""

    def result(code: str, **variables: str) -> dict[str, Any]:
        before = "import gc, json, torch\nout = {}\n"
        done = python(before + textwrap.dedent(code) + on_cuda.END, **variables)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    return result


# ---- what is allocated


def test_every_allocation_is_counted_to_the_byte(run):
    out = run("""
        def stats():
            s = torch.cuda.memory_stats()
            keys = "allocation.all.allocated", "allocation.all.freed", "allocated_bytes.all.current"
            return [s[key] for key in (*keys, "requested_bytes.all.current")]
        out["available"] = torch.cuda.is_available()
        torch.cuda.init()
        out["stats"] = [stats()]
        kept = [torch.empty(n, dtype=torch.uint8, device="cuda") for n in (1, 512, 513, 3_000_000)]
        out["stats"].append(stats())
        out["reserved"] = torch.cuda.memory_reserved()
        del kept[1:]
        out["stats"].append(stats())
        torch.cuda.empty_cache()
        out["left"] = torch.cuda.memory_reserved()
    """)
    sizes = [512, 512, 1024, 3_000_320]  # rounded up to 512 bytes
    assert out["available"]
    assert out["stats"] == [[0, 0, 0, 0], [4, 0, sum(sizes), 3_001_026], [4, 3, 512, 1]]
    assert out["reserved"] == 2 * MIB + 20 * MIB  # a segment of small blocks and one of large ones
    assert out["left"] == 2 * MIB


def test_the_device_has_less_left_by_what_is_reserved(stub):
    out = stub("""
        torch.cuda.init()
        free = lambda: torch.cuda.mem_get_info()[0]
        out["free"] = [free()]
        x = torch.empty(100 * 2**20, dtype=torch.uint8, device="cuda")
        out["free"].append(free())
        del x
        out["free"].append(free())
        torch.cuda.empty_cache()
        out["free"].append(free())
    """)
    assert out["free"] == [8 * GIB, 8 * GIB - 100 * MIB, 8 * GIB - 100 * MIB, 8 * GIB]


def test_memory_costs_nothing_until_it_is_written(stub):
    out = stub("""
        import psutil
        resident = lambda: psutil.Process().memory_info().rss
        torch.zeros(1).cuda()
        before = resident()
        kept = [torch.empty(2**30, dtype=torch.uint8, device="cuda") for _ in range(6)]
        kept[0].zero_()
        kept[1].fill_(7)
        kept[2][: 2**28].copy_(kept[3][: 2**28])
        out["grown"] = resident() - before
        kept[2][: 2**26].copy_(torch.ones(2**26, dtype=torch.uint8))
        out["written"] = resident() - before
    """)
    assert out["grown"] < 32 * MIB
    assert out["written"] > 60 * MIB


def test_the_history_has_python_stacks_and_the_snapshot_every_block(run):
    out = run("""
        torch.cuda.memory._record_memory_history(stacks="python")
        def makes():
            return torch.empty(1000, device="cuda")
        x, y = makes(), makes()
        address = y.data_ptr()
        del y
        snapshot = torch.cuda.memory._snapshot()
        names = lambda frames: [frame["name"] for frame in frames]
        blocks = [block for segment in snapshot["segments"] for block in segment["blocks"]]
        out["blocks"] = [[b["state"], b["requested_size"]] for b in blocks if b["state"] != "inactive"]
        out["stacks"] = [names(block["frames"]) for block in blocks if block["state"] == "active_allocated"]
        trace = snapshot["device_traces"][0]
        out["actions"] = [e["action"] for e in trace if e.get("addr") == address and e["action"] != "segment_alloc"]
        out["alloc"] = [names(e["frames"]) for e in trace if e["addr"] == address and e["action"] == "alloc"]
    """)
    assert out["blocks"] == [["active_allocated", 4000]]
    assert [stack[:2] for stack in out["stacks"]] == [["makes", "<module>"]]
    assert out["actions"] == ["alloc", "free_requested", "free_completed"]
    assert [stack[:2] for stack in out["alloc"]] == [["makes", "<module>"]]


def test_out_of_memory_comes_at_the_size_that_is_set_and_its_observer_is_called(stub):
    out = stub(
        """
        seen = []
        torch.cuda.init()
        torch._C._cuda_attach_out_of_memory_observer(lambda *arguments: seen.append(arguments))
        kept, steps = [], 0
        try:
            for steps in range(100):
                kept.append(torch.empty(32 * 2**20, dtype=torch.uint8, device="cuda"))
        except torch.OutOfMemoryError as error:
            out["error"] = str(error)
        out["steps"], out["seen"] = steps, seen
        kept.clear()
        out["again"] = torch.empty(192 * 2**20, dtype=torch.uint8, device="cuda").numel()
        """,
        STUBGPU_BYTES=str(256 * MIB),
    )
    assert out["steps"] == 8
    assert "Tried to allocate 32.00 MiB. GPU 0 has a total capacity of 256.00 MiB" in out["error"]
    assert out["seen"] == [[0, 32 * MIB, 256 * MIB, 0]]
    assert out["again"] == 192 * MIB


def test_pinned_memory_is_counted_apart(run):
    out = run("""
        stats = lambda: [torch.cuda.host_memory_stats()[f"{k}.current"] for k in ("active_bytes", "allocated_bytes")]
        torch.cuda.init()
        x = torch.arange(1000, dtype=torch.uint8).pin_memory()
        plain = torch.zeros(1)
        out["stats"] = [stats()]
        out["pinned"] = [x.is_pinned(), x[10:].is_pinned(), plain.is_pinned()]
        out["same"] = torch.equal(x.to("cuda", non_blocking=True).cpu(), x)
        out["device"] = torch.cuda.memory_allocated()
        del x
        torch.cuda.synchronize()
        torch._C._host_emptyCache()
        out["stats"].append(stats())
    """)
    assert out["stats"][0][1] >= 1024
    assert out["stats"][1] == [0, 0]
    assert out["pinned"] == [True, True, False]
    assert out["same"]
    assert out["device"] == 0


# ---- values


def test_copies_bring_values_back_and_kernels_leave_memory_as_it_was(stub):
    out = stub(
        """
        import ctypes
        x = torch.randn(300, 5)
        there = x.to("cuda:0")
        out["copies"] = [torch.equal(y.cpu(), x) for y in (there, there.clone(), there.to("cuda:1"))]
        out["number"] = torch.tensor(5.0).cuda().item()
        bytes = torch.ones(9000, dtype=torch.uint8).cuda()
        ctypes.CDLL(None).cudaMemset(ctypes.c_void_p(bytes.data_ptr() + 7), 3, ctypes.c_size_t(8000))
        out["filled"] = torch.equal(bytes.cpu(), torch.tensor([1] * 7 + [3] * 8000 + [1] * 993))
        there.mul_(2)
        out["same"] = torch.equal(there.cpu(), x)
        left = [torch.ones(100).cuda() for _ in range(8)]
        del left  # whose blocks go to the results
        out["sum"] = there.sum().item()
        out["masked"] = list(there[there > 0].shape)
        """,
        STUBGPU_DEVICES="2",
    )
    assert out["copies"] == [True, True, True]
    assert out["number"] == 5
    assert out["filled"]
    assert out["same"]
    assert out["sum"] == 0  # the number that a kernel should have written
    assert out["masked"] == [0]


def test_what_is_out_of_reach_is_an_error_and_not_a_crash(stub):
    out = stub("""
        from torch.multiprocessing.reductions import reduce_tensor
        x = torch.eye(3, device="cuda")
        index = torch.arange(4, device="cuda")
        attempts = {
            "sparse": lambda: torch.sparse_csr_tensor(index, index[:3], x[0], (3, 3)) @ x,
            "inverse": lambda: torch.linalg.inv(x),
            "processes": lambda: reduce_tensor(x),
            "nccl": lambda: torch.cuda.nccl.unique_id(),
        }
        for name, attempt in attempts.items():
            try:
                attempt()
            except RuntimeError as error:
                out[name] = str(error)
    """)
    assert "cusolver" in out["inverse"]
    assert "cusparse" in out["sparse"]
    assert "not supported" in out["processes"]
    assert "NCCL" in out["nccl"]


# ---- training

LAYERS = """
    from torch import nn
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(4))
            self.lstm = nn.LSTM(16, 32, batch_first=True)
            self.attention = nn.TransformerEncoderLayer(32, 4, dim_feedforward=64, batch_first=True)
            self.last = nn.Linear(32, 10)
        def forward(self, x):
            sequence, _ = self.lstm(self.conv(x).flatten(2))
            return self.last(self.attention(sequence).mean(1))
    net = Net().cuda()
    optimizer = torch.optim.Adam(net.parameters(), foreach=True)
    scaler = torch.amp.GradScaler("cuda")
"""


@pytest.mark.parametrize("autocast", [False, True], ids=["float32", "autocast"])
def test_training_steps_keep_their_memory_level(run, autocast):
    out = run(
        textwrap.dedent(LAYERS)
        + textwrap.dedent(f"""
        levels = []
        for step in range(6):
            x, target = torch.randn(4, 3, 16, 16).cuda(), torch.randint(10, (4,)).cuda()
            with torch.autocast("cuda", dtype=torch.float16, enabled={autocast}):
                y = net(x)
                loss = nn.functional.cross_entropy(y, target)
            out["dtype"] = str(y.dtype)
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            out["graph"] = loss.grad_fn is not None
            del x, target, y, loss
            levels.append(torch.cuda.memory_allocated())
        out["levels"] = levels
        out["grads"] = all(p.grad is not None and p.grad.is_cuda for p in net.parameters())
        out["above"] = torch.cuda.max_memory_allocated() - levels[-1]
        """)
    )
    assert out["dtype"] == ("torch.float16" if autocast else "torch.float32")
    assert len(set(out["levels"][1:])) == 1
    assert out["levels"][-1] > 0
    assert out["graph"]
    assert out["grads"]
    assert out["above"] > 0


# ---- pools, segments and backends

EXPANDABLE = {"PYTORCH_ALLOC_CONF": "expandable_segments:True", "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
ASYNC = {"PYTORCH_ALLOC_CONF": "backend:cudaMallocAsync", "PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"}


def test_expandable_segments_grow_and_give_back(stub):
    out = stub(
        """
        free = lambda: torch.cuda.mem_get_info()[0]
        torch.cuda.init()
        start = free()
        kept = [torch.empty(30 * 2**20, dtype=torch.uint8, device="cuda") for _ in range(3)]
        values = torch.arange(2**18)
        there = values.cuda()
        segments = torch.cuda.memory._snapshot()["segments"]
        out["expandable"] = [segment["is_expandable"] for segment in segments]
        out["reserved"], out["taken"] = torch.cuda.memory_reserved(), start - free()
        out["same"] = torch.equal(there.cpu(), values)
        try:
            torch.empty(200 * 2**20, dtype=torch.uint8, device="cuda")
        except torch.OutOfMemoryError:
            out["full"] = True
        del kept, there
        torch.cuda.empty_cache()
        out["back"] = start - free()
        """,
        STUBGPU_BYTES=str(256 * MIB),
        **EXPANDABLE,
    )
    assert set(out["expandable"]) == {True}
    assert out["reserved"] == out["taken"] >= 92 * MIB
    assert out["same"]
    assert out["full"]
    assert out["back"] == 0


def test_the_asynchronous_backend_counts_what_is_in_use(stub):
    out = stub(
        """
        out["backend"] = torch.cuda.get_allocator_backend()
        levels = [torch.cuda.memory_allocated()]
        x = torch.empty(5 * 2**20, dtype=torch.uint8, device="cuda")
        levels.append(torch.cuda.memory_allocated())
        try:
            torch.empty(60 * 2**20, dtype=torch.uint8, device="cuda")
        except torch.OutOfMemoryError:
            out["full"] = True
        del x
        out["levels"] = [*levels, torch.cuda.memory_allocated()]
        out["peak"] = torch.cuda.max_memory_allocated()
        """,
        STUBGPU_BYTES=str(64 * MIB),
        **ASYNC,
    )
    assert out["backend"] == "cudaMallocAsync"
    assert out["full"]
    assert out["levels"] == [0, 5 * MIB, 0]
    assert out["peak"] == 5 * MIB


def test_private_pools_are_told_apart_in_the_snapshot(run):
    out = run("""
        pools = lambda: sorted({tuple(s["segment_pool_id"]) for s in torch.cuda.memory._snapshot()["segments"]})
        outside = torch.empty(1000, device="cuda")
        pool = torch.cuda.MemPool()
        with torch.cuda.use_mem_pool(pool):
            inside = torch.empty(1000, device="cuda")
        out["pools"] = [pools()]
        out["id"] = pool.id
        out["inside"] = [b["requested_size"] for s in pool.snapshot() for b in s["blocks"] if b["state"] != "inactive"]
        out["handle"] = torch.cuda.graphs.graph_pool_handle()
        del inside, pool
        gc.collect()
        torch.cuda.empty_cache()
        out["pools"].append(pools())
    """)
    assert out["pools"] == [sorted([[0, 0], out["id"]]), [[0, 0]]]
    assert out["inside"] == [4000]
    assert out["handle"] not in ([0, 0], out["id"])


def test_a_graph_is_captured_into_a_pool_of_its_own(run):
    out = run("""
        import warnings
        pools = lambda: sorted({tuple(s["segment_pool_id"]) for s in torch.cuda.memory._snapshot()["segments"]})
        x = torch.ones(1000, device="cuda")
        graph, side = torch.cuda.CUDAGraph(), torch.cuda.Stream()
        out["capturing"] = [torch.cuda.is_current_stream_capturing()]
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with torch.cuda.graph(graph):
                y = x * 2
                side.wait_stream(torch.cuda.current_stream())
                with torch.cuda.stream(side):
                    out["capturing"].append(torch.cuda.is_current_stream_capturing())
                    z = y + 1
                torch.cuda.current_stream().wait_stream(side)
                out["capturing"].append(torch.cuda.is_current_stream_capturing())
            out["warned"] = [len(caught)]
            with torch.cuda.stream(side):
                out["capturing"].append(torch.cuda.is_current_stream_capturing())
            empty = torch.cuda.CUDAGraph()
            with torch.cuda.graph(empty):
                pass
            out["warned"].append(["empty" in str(w.message) for w in caught])
        graph.replay()
        torch.cuda.synchronize()
        out["id"], out["pools"] = graph.pool(), [pools()]
        del y, z, empty
        graph.reset()
        torch.cuda.empty_cache()
        out["pools"].append(pools())
    """)
    assert out["capturing"] == [False, True, True, False]
    assert out["warned"] == [0, [True]]
    assert out["pools"] == [sorted([[0, 0], out["id"]]), [[0, 0]]]


def test_what_a_graph_keeps_lives_as_long_as_it_can_run(stub):
    out = stub("""
        import ctypes
        runtime, pointer, at = ctypes.CDLL(None), ctypes.c_void_p, ctypes.byref
        gone = []
        function = ctypes.CFUNCTYPE(None, pointer)(gone.append)
        stream, kept, graph, executable = pointer(), pointer(), pointer(), pointer()
        runtime.cudaStreamCreate(at(stream))
        runtime.cudaLaunchHostFunc(stream, function, pointer(1))
        runtime.cudaStreamBeginCapture(stream, 0)
        runtime.cudaLaunchHostFunc(stream, function, pointer(2))  # is captured and not called
        runtime.cudaStreamEndCapture(stream, at(graph))
        runtime.cudaUserObjectCreate(at(kept), pointer(3), function, 1, 1)
        runtime.cudaGraphRetainUserObject(graph, kept, 1, 1)
        runtime.cudaGraphInstantiate(at(executable), graph, ctypes.c_ulonglong(0))
        runtime.cudaGraphDestroy(graph)
        out["gone"] = [list(gone)]
        runtime.cudaGraphExecDestroy(executable)
        out["gone"].append(gone)
    """)
    assert out["gone"] == [[1], [1, 3]]


def test_streams_and_events(run):
    out = run("""
        stream, start, end = torch.cuda.Stream(priority=-1), *(torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        with torch.cuda.stream(stream):
            x = torch.empty(1000, device="cuda")
            out["current"] = torch.cuda.current_stream() == stream
        x.record_stream(torch.cuda.current_stream())
        end.record()
        end.synchronize()
        stream.synchronize()
        out["over"] = [end.query(), stream.query()]
        out["elapsed"] = start.elapsed_time(end)
        out["priority"] = stream.priority
        out["segments"] = [s["stream"] == stream.cuda_stream for s in torch.cuda.memory._snapshot()["segments"]]
        del x
        torch.cuda.empty_cache()
        out["left"] = torch.cuda.memory_reserved()
    """)
    assert out["current"]
    assert out["over"] == [True, True]
    assert out["elapsed"] >= 0
    assert out["priority"] == -1
    assert out["segments"] == [True]
    assert out["left"] == 0


# ---- settings


def test_devices_count_apart(stub):
    out = stub(
        """
        kept = [torch.empty(1000 * (i + 1), device=f"cuda:{i}") for i in range(torch.cuda.device_count())]
        out["allocated"] = [torch.cuda.memory_allocated(i) for i in range(len(kept))]
        out["free"] = [torch.cuda.mem_get_info(i) for i in range(len(kept))]
        out["capability"] = torch.cuda.get_device_capability(2)
        out["uuids"] = len({str(torch.cuda.get_device_properties(i).uuid) for i in range(len(kept))})
        """,
        STUBGPU_DEVICES="3",
        STUBGPU_BYTES=str(GIB),
        STUBGPU_TAKEN=str(10 * MIB),
        STUBGPU_CAPABILITY="9.0",
    )
    assert out["allocated"] == [4096, 8192, 12288]
    assert out["free"] == [[GIB - 12 * MIB, GIB]] * 3
    assert out["capability"] == [9, 0]
    assert out["uuids"] == 3


@pytest.mark.parametrize(
    ("variables", "count"),
    [
        ({"STUBGPU_DEVICES": "0"}, 0),
        ({"STUBGPU_DEVICES": "4", "CUDA_VISIBLE_DEVICES": "2,0,7,1"}, 2),
    ],
    ids=["none", "hidden"],
)
def test_devices_that_are_not_there_are_not_seen(stub, variables, count):
    out = stub("out['found'] = [torch.cuda.is_available(), torch.cuda.device_count()]", **variables)
    assert out["found"] == [count > 0, count]


@pytest.mark.parametrize("setting", ["STUBGPU_BYTES=8GB", "STUBGPU_DEVICES=-1", "STUBGPU_CAPABILITY=9"])
def test_a_setting_that_is_not_understood_ends_the_program(stub, setting):
    name, value = setting.split("=")
    done = python("import ctypes; ctypes.CDLL(None).cudaGetDevice(ctypes.byref(ctypes.c_int()))", **{name: value})
    assert done.returncode == 2
    assert done.stderr.strip() == f"stubgpu: {setting} is not understood"


# ---- the build


def test_builds_at_the_same_time_make_one_library(stub, tmp_path):
    log, tools, store = tmp_path / "log", tmp_path / "tools", tmp_path / "store"
    tools.mkdir()
    compiler = tools / "gcc"
    compiler.write_text(f'#!/bin/sh\necho "$*" >> {log}\nexec {shutil.which("gcc")} "$@"\n', encoding="utf-8")
    compiler.chmod(0o755)
    environment = {**os.environ, "XDG_CACHE_HOME": str(store), "PATH": f"{tools}:{os.environ['PATH']}"}
    command = [sys.executable, str(on_cuda.BUILD)]
    builds = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    lines = {build.communicate(timeout=120)[0] for build in builds}
    assert [build.returncode for build in builds] == [0, 0, 0]
    assert len(lines) == 1
    assert lines.pop().startswith(f"export LD_PRELOAD={store}")
    (folder,) = (store / "leakhunter-stubgpu").iterdir()
    assert sorted(path.name for path in folder.iterdir()) == ["libcuda.so.1", "libnvidia-ml.so.1", "lock"]
    assert len(log.read_text(encoding="utf-8").splitlines()) == 2  # once to compile, once to link


@pytest.fixture
def builder(monkeypatch, tmp_path) -> Any:
    """A build that has nothing in its cache, on Linux with a CUDA build of PyTorch and all tools."""
    if os.name != "posix":
        pytest.skip("the paths here are those of a POSIX system")
    module = on_cuda.load(on_cuda.BUILD)
    torch = tmp_path / "site" / "torch"
    (torch / "lib").mkdir(parents=True)
    (torch / "lib" / "libtorch_cuda.so").touch()
    (torch / "version.py").write_text("__version__ = '9.9.9+cu999'\n", encoding="utf-8")
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(module, "torch_folder", lambda: torch)
    monkeypatch.setattr(module.shutil, "which", lambda name: name)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("CUDA_HOME", raising=False)
    return module


def why(module: Any) -> str:
    with pytest.raises(module.Unavailable) as caught:
        module.environment()
    return str(caught.value)


def test_it_says_that_it_needs_linux(builder, monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    assert why(builder) == "the stub GPU needs Linux, and this is darwin"


def test_it_says_which_tools_it_needs(builder, monkeypatch):
    monkeypatch.setattr(builder.shutil, "which", lambda name: None if name == "nm" else name)
    assert why(builder) == "the stub GPU is built with nm, not found on this machine"
    monkeypatch.setattr(builder.shutil, "which", lambda name: None)
    assert why(builder) == "the stub GPU is built with gcc and nm, not found on this machine"


def test_it_says_that_pytorch_has_no_cuda(builder, monkeypatch, tmp_path):
    module = on_cuda.load(on_cuda.BUILD)
    (tmp_path / "site" / "torch" / "__init__.py").touch()
    (tmp_path / "site" / "torch" / "lib" / "libtorch_cuda.so").unlink()
    spec = importlib.util.spec_from_file_location("torch", tmp_path / "site" / "torch" / "__init__.py")
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: spec)
    assert why(module) == "the stub GPU needs a CUDA build of PyTorch, and the one installed has none of CUDA"
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: None)
    assert why(module) == "the stub GPU needs PyTorch, not installed in this Python"


def test_it_says_that_the_cache_cannot_be_preloaded(builder, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "a b"))
    assert why(builder).startswith("LD_PRELOAD cannot name ")


def test_it_says_that_the_cache_cannot_be_written(builder, monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert why(builder).startswith("the stub GPU cannot be built in ")


def test_what_is_preloaded_already_stays(builder, monkeypatch, tmp_path):
    library = tmp_path / "cache" / "leakhunter-stubgpu" / builder.key(builder.torch_folder()) / builder.LIBRARY
    library.parent.mkdir(parents=True)
    library.touch()
    monkeypatch.setenv("LD_PRELOAD", f"/other.so:{library}")
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    assert builder.environment() == {"LD_PRELOAD": f"{library}:/other.so", "LD_LIBRARY_PATH": str(library.parent)}
