"""Suite files: found by path, loaded under a private module name, so that two may have the same file name."""

import hashlib
import importlib.util
import sys
import traceback
from pathlib import Path

from pairbench.errors import DeclarationError, SuiteError
from pairbench.model.operator import Operator

MODULE_PREFIX = "pairbench_suite_"


def find_suites(places: tuple[Path, ...]) -> tuple[Path, ...]:
    """Return the suite files among files and folders; a folder gives its `*.py` files that mention `Operator`.

    Files of helpers (kernels, say) may stand beside suites; they declare nothing and are passed over.

    Raises:
        SuiteError: a place does not exist.
    """
    found: list[Path] = []
    for place in places:
        if place.is_dir():
            found += [file for file in sorted(place.glob("*.py")) if "Operator" in file.read_text(errors="replace")]
        elif place.is_file():
            found.append(place)
        else:
            raise SuiteError(f"suite {str(place)!r} does not exist, expected a file or a folder of suite files")
    return tuple(dict.fromkeys(found))


def load_suite(path: Path) -> dict[str, Operator]:
    """Load a suite file and return its operators by name, in the order of declaration.

    The file's own folder can be imported from while it loads.

    Raises:
        SuiteError: the file cannot be imported, declares nothing, or declares two operators of one name.
    """
    path = path.resolve()
    name = f"{MODULE_PREFIX}{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise SuiteError(f"suite {path.name}: not a Python file, expected one that ends in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # inspect, torch.compile and Triton look the functions' source up by it
    sys.path.insert(0, str(path.parent))
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise SuiteError(_sentence(path, error)) from error
    finally:
        sys.path.remove(str(path.parent))
    operators: dict[str, Operator] = {}
    for value in vars(module).values():
        if not isinstance(value, Operator):
            continue
        if operators.setdefault(value.name, value) is not value:
            raise SuiteError(
                f"suite {path.name}: two operators are named {value.name!r}; a name is the key of its history, so give each its own"
            )
    if not operators:
        raise SuiteError(f"suite {path.name}: declares no operator, expected at least one module-level Operator(...)")
    return operators


def _sentence(path: Path, error: BaseException) -> str:
    if isinstance(error, SyntaxError):
        return f"suite {path.name}, line {error.lineno}: {type(error).__name__}: {error.msg}"
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename) == path]
    where = f"suite {path.name}, line {lines[-1]}" if lines else f"suite {path.name}"
    if isinstance(error, DeclarationError):
        return f"{where}: {error}"
    return f"{where}: {type(error).__name__}: {error}"
