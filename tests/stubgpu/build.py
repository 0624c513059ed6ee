"""Build the stand-in for the CUDA runtime that fits the installed PyTorch.

    eval "$(python tests/stubgpu/build.py)"     # sets LD_PRELOAD and LD_LIBRARY_PATH in this shell

or, in Python, `environment()`. The README beside this file says what to expect.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator

SOURCE = pathlib.Path(__file__).resolve().with_name("stubgpu.c")

# With the driver's name the one library serves as runtime and driver both: who needs libcuda.so.1 has it already.
LIBRARY = "libcuda.so.1"

# PyTorch opens this one by name, and with expandable segments it does so without asking whether that went well.
MANAGEMENT = "libnvidia-ml.so.1"

# Functions that need no device are left to the real libraries: versions and the texts of errors.
REAL = re.compile(
    r"cu\w+Get(Last)?Error(Name|String)|cublasLtGetVersion|cudnnGet(Version|CudartVersion|Property)"
    r"|nccl(GetVersion|GetErrorString|GetLastError)|cuFile\w+"
)

# What a function returns that stubgpu.c does not define, by the library it is from; the first that matches counts.
# Calls to cuBLAS and cuFFT fill tensors, so they need do nothing. Others hand back sizes and handles: they fail with
# an error of that library, lest PyTorch go on with numbers that no one wrote.
ANSWERS = {
    "cublas": 0,
    "cufft": 0,
    "cusolver": 7,
    "cusparse": 10,
    "cudnn": 3000,
    "nccl": 1,
    "cuda": 801,
    "__cuda": 801,
    r"cu[A-Z]": 801,
}

# PyTorch's wheels bring CUDA's headers without this one, which would be empty of meaning for a C compiler.
HOST_DEFINES = """
#pragma once
#define CUDARTAPI
#define CUDARTAPI_CDECL
#define __align__(n) __attribute__((aligned(n)))
#define __builtin_align__(n) __align__(n)
#define __cudart_builtin__
#define __cuda_builtin_vector_align8(tag, members) struct __align__(8) tag { members }
#define __device_builtin__
#define __device_builtin_surface_type__
#define __device_builtin_texture_type__
#define __device__
#define __host__
"""


class Unavailable(Exception):
    """Why there can be no stand-in here, in one sentence."""


def environment() -> dict[str, str]:
    """What a child process needs in its environment; builds the library when it is not there yet.

    Only a preloaded library comes before those that PyTorch finds by itself; the path is for what is opened by name.
    """
    folder = library().parent
    return {"LD_PRELOAD": joined(folder / LIBRARY, "LD_PRELOAD"), "LD_LIBRARY_PATH": joined(folder, "LD_LIBRARY_PATH")}


def joined(first: pathlib.Path, name: str) -> str:
    """A path before those that the variable has already."""
    others = [part for part in os.environ.get(name, "").split(":") if part not in ("", str(first))]
    return ":".join([str(first), *others])


def library() -> pathlib.Path:
    """The path of the library, which is built at most once for each version of PyTorch and of the sources."""
    if not sys.platform.startswith("linux"):
        raise Unavailable(f"the stub GPU needs Linux, and this is {sys.platform}")
    torch = torch_folder()
    missing = [tool for tool in ("gcc", "nm") if shutil.which(tool) is None]
    if missing:
        raise Unavailable(f"the stub GPU is built with {' and '.join(missing)}, not found on this machine")
    found = cache() / f"{key(torch)}/{LIBRARY}"
    if re.search(r"[\s:]", str(found)):
        raise Unavailable(f"LD_PRELOAD cannot name {found}: set XDG_CACHE_HOME to a path with no blank and no colon")
    if not found.exists():
        try:
            with alone(found.parent):
                if not found.exists():
                    build(torch, found)
        except subprocess.CalledProcessError as error:
            first = next((line for line in error.stderr.splitlines() if "error" in line), str(error))
            raise Unavailable(f"the stub GPU does not build with this PyTorch: {first}") from error
        except OSError as error:
            raise Unavailable(f"the stub GPU cannot be built in {found.parent}: {error}") from error
    return found


def torch_folder() -> pathlib.Path:
    """The folder of the installed PyTorch, which must be a CUDA build. It is not imported."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        raise Unavailable("the stub GPU needs PyTorch, not installed in this Python")
    folder = pathlib.Path(spec.origin).parent
    if not (folder / "lib" / "libtorch_cuda.so").exists():
        raise Unavailable("the stub GPU needs a CUDA build of PyTorch, and the one installed has none of CUDA")
    return folder


def cache() -> pathlib.Path:
    """In the user's own folder: what is preloaded into programs must not lie where others can write."""
    return pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "leakhunter-stubgpu"


def key(torch: pathlib.Path) -> str:
    """What the library depends on: PyTorch's version and CUDA's, and the sources."""
    version = (torch / "version.py").read_bytes()
    number = re.search(rb"__version__ = '([\w.+]+)'", version)
    digest = hashlib.sha256(version + SOURCE.read_bytes() + pathlib.Path(__file__).read_bytes()).hexdigest()
    return f"{number.group(1).decode() if number else 'torch'}-{digest[:16]}"


@contextlib.contextmanager
def alone(folder: pathlib.Path) -> Iterator[None]:
    """One process at a time builds in this folder; the others wait and find the result."""
    import fcntl  # Not on every platform, and this file can be imported on all.

    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def build(torch: pathlib.Path, target: pathlib.Path) -> None:
    """Compile in a folder of its own, then put the library in its place in one step."""
    with tempfile.TemporaryDirectory(dir=target.parent) as name:
        folder = pathlib.Path(name)
        (folder / "crt").mkdir()
        (folder / "crt" / "host_defines.h").write_text(HOST_DEFINES, encoding="utf-8")
        headers = [f"-I{path}" for path in (*include(torch), folder)]
        gcc = ["gcc", "-std=gnu11", "-O1", "-fPIC", "-w"]
        output(*gcc, *headers, "-c", str(SOURCE), "-o", str(folder / "stubgpu.o"))
        rest = imported(torch) - symbols(folder / "stubgpu.o", "--defined-only")
        (folder / "rest.c").write_text("".join(map(answer, sorted(rest))), encoding="utf-8")
        parts = [str(folder / "rest.c"), str(folder / "stubgpu.o")]
        options = ["-fno-builtin", "-shared", f"-Wl,-soname,{LIBRARY}"]
        output(*gcc, *options, *parts, "-o", str(folder / LIBRARY), "-lpthread", "-ldl")
        (folder / MANAGEMENT).symlink_to(LIBRARY)
        for part in (MANAGEMENT, LIBRARY):  # the library last: where it is, all is
            os.replace(folder / part, target.with_name(part))


def include(torch: pathlib.Path) -> list[pathlib.Path]:
    """Where CUDA's headers are: in the wheels beside PyTorch, else with CUDA itself."""
    wheels = [*torch.parent.glob("nvidia/cu*/include"), torch.parent / "nvidia" / "cuda_runtime" / "include"]
    homes = [pathlib.Path(os.environ.get("CUDA_HOME") or "/usr/local/cuda") / "include"]
    found = [path for path in (*wheels, *homes) if (path / "cuda_runtime_api.h").exists()]
    if not found:
        raise Unavailable("the stub GPU needs the headers of CUDA, found neither beside PyTorch nor in CUDA_HOME")
    return found[:1]


def imported(torch: pathlib.Path) -> set[str]:
    """The functions of CUDA that PyTorch's libraries take from others and that need a device."""
    paths = [path for path in (torch / "lib").glob("lib*.so") if re.search("cuda|python|nvrtc", path.name)]
    names = set().union(*(symbols(path, "-D", "--undefined-only") for path in paths))
    return {name for name in names if answered(name) and not REAL.fullmatch(name)}


def symbols(path: pathlib.Path, *options: str) -> set[str]:
    """The names in a library or an object file, without their versions."""
    lines = output("nm", *options, str(path)).splitlines()
    return {line.split()[-1].split("@")[0] for line in lines if line.strip()}


def answered(name: str) -> str | None:
    """The pattern in `ANSWERS` that a name falls under."""
    return next((pattern for pattern in ANSWERS if re.match(pattern, name)), None)


def answer(name: str) -> str:
    """A function that only returns what its library's functions are to return."""
    return f"int {name}(void) {{ return {ANSWERS[answered(name) or '']}; }}\n"


def output(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, errors="replace").stdout


def main() -> None:
    try:
        variables = environment()
    except Unavailable as error:
        sys.exit(str(error))
    print("export " + " ".join(f"{name}={shlex.quote(value)}" for name, value in variables.items()))


if __name__ == "__main__":
    main()
