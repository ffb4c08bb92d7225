"""Solutions in C++ and CUDA: why one cannot be built here, and building it with PyTorch's own tool."""

import fcntl
import os
import shutil
from pathlib import Path
from typing import Any

from pairbench.own_folders import make_own, temporary_folder
from pairbench.suite import traces

_COMPILED = (".cpp", ".cc", ".cxx", ".c", ".cu")


def why_not(one: traces.Solution) -> str | None:
    """Return why this machine cannot build a solution, as a sentence; None where it can."""
    if one.languages[0] not in traces.NATIVE:
        return None
    home = os.environ.get("CUDA_HOME") or "/usr/local/cuda"
    if needs(one) and not (shutil.which("nvcc") or Path(home, "bin", "nvcc").is_file()):
        return "it is CUDA source, and nvcc is neither on PATH nor in CUDA_HOME; install the CUDA toolkit"
    missing = [name for name in ("ninja", os.environ.get("CXX", "c++")) if not shutil.which(name)]
    return f"it is C++ source, and {missing[0]} is not on PATH; install it" if missing else None


def needs(one: traces.Solution) -> tuple[str, ...]:
    """Return what a solution needs to run, as of a variant."""
    if "triton" in one.languages:
        return ("triton",)
    if {"python", "pytorch"} & {*one.languages} or (one.languages == ("cpp",) and not _has_cuda(one)):
        return ()
    return ("cuda",)


def _has_cuda(one: traces.Solution) -> bool:
    return any(name.endswith((".cu", ".cuh")) for name in one.sources)


def built(one: traces.Solution) -> Any:
    """Build a solution, or take what was built of the same sources before, and return its module."""
    from torch.utils.cpp_extension import load

    name = f"solution_{traces.digest_of([one.sources, one.options])}"
    folder = make_own(temporary_folder(), "extensions", name)
    with (folder / "building").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        (folder / "lock").unlink(missing_ok=True)  # torch's own, which a process that was killed leaves behind
        files = []
        for path, text in one.sources.items():
            file = folder / path
            file.parent.mkdir(parents=True, exist_ok=True)
            if (
                not file.is_file() or file.read_text(encoding="utf-8") != text
            ):  # its time says whether it is built again
                file.write_text(text, encoding="utf-8")
            files += [str(file)] if path.endswith(_COMPILED) else []
        return load(
            name=name,
            sources=files,
            extra_include_paths=[str(folder)],
            extra_cflags=one.options["cflags"],
            extra_cuda_cflags=one.options["cuda_cflags"],
            extra_ldflags=one.options["ld_flags"],
            with_cuda=bool(needs(one)),
            build_directory=str(folder),
        )
