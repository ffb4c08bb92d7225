"""Problems of other people's corpora as operators, one file for each form; KernelBench's is `worker.problems`.

A form is recognised by its file, declares operators, and finds candidates for them.
"""

from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

from pairbench.execute.worker import problems
from pairbench.execute.worker.corpora import backendbench, trace
from pairbench.model.operator import Operator


def operators_of(path: Path, module: ModuleType | None, *, against: str) -> Iterable[Operator]:
    """Return the operators of a problem's file with its candidates in `against`, a file or a folder; `module` is a Python file, loaded."""
    if module is not None:
        return [problems.operator_of(path, module, against)]
    return backendbench.operators_of(path, against) if path.suffix == ".txt" else [trace.operator_of(path, against)]
