# ruff: noqa: INP001, ARG002 (it is no module of the package for Python, which imports it by its name alone)
"""Starts the recorder of `pairbench capture` in each Python process of the program, as soon as the process has imported torch.

This folder is first on PYTHONPATH, so that Python imports this file as it starts; a `sitecustomize` of the program's own is imported next.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType


def _record() -> None:
    try:
        recorder = importlib.import_module("pairbench.execute.worker.capture")
    except ImportError:  # another interpreter than the command's
        sys.path.append(os.environ["PAIRBENCH_CAPTURE_PACKAGE"])
        recorder = importlib.import_module("pairbench.execute.worker.capture")
    recorder.record_this_process(Path(os.environ["PAIRBENCH_CAPTURE"]))


class _AfterTorch(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):  # type: ignore[no-untyped-def]
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def then_record(module: ModuleType) -> None:
                execute(module)
                try:
                    _record()
                except Exception as error:  # the program goes on without
                    sys.stderr.write(f"pairbench: this process is not recorded: {type(error).__name__}: {error}\n")

            spec.loader.exec_module = then_record  # type: ignore[method-assign]
        return spec


if os.environ.get("PAIRBENCH_CAPTURE"):
    sys.meta_path.insert(0, _AfterTorch())
    sys.path[:] = [folder for folder in sys.path if folder != str(Path(__file__).parent)]
    own = importlib.machinery.PathFinder.find_spec("sitecustomize")  # of the program
    if own is not None and own.loader is not None:
        own.loader.exec_module(importlib.util.module_from_spec(own))
