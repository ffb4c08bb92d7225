"""The modules among a call's arguments (their names, a watch on their calls, whether a call changes their form), and what else is seen of a call as it runs: methods of libraries, and each operator as it is dispatched."""

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import fields, is_dataclass
from typing import Any, Self
from unittest.mock import patch

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from pairbench.execute.worker.trees import has_address, named_tensors, nodes

Around = Callable[[str, torch.nn.Module, Any, Callable[[], Any]], Any]
"""Makes a call of a named module and returns its outputs, in the thread of the caller, given also the arguments and keyword arguments."""
_CALLED = tuple(name for name in vars(torch.nn.Module()) if "hooks" in name and "state_dict" not in name)
_REGISTERED = {"_parameters": "parameter", "_modules": "module", **dict.fromkeys(_CALLED, "hook")}


def roots(tree: Any, path: str = "") -> dict[str, torch.nn.Module]:
    """Return the outermost modules in a tree of dicts, lists, tuples and dataclasses, by their path."""
    if isinstance(tree, torch.nn.Module):
        return {path: tree}
    if isinstance(tree, dict):
        items = [(str(key), value) for key, value in tree.items()]
    elif isinstance(tree, list | tuple):
        items = [(str(index), value) for index, value in enumerate(tree)]
    elif is_dataclass(tree) and not isinstance(tree, type):
        items = [(item.name, getattr(tree, item.name, None)) for item in fields(tree)]
    else:
        return {}
    modules: dict[str, torch.nn.Module] = {}
    for name, value in items:
        modules |= roots(value, f"{path}.{name}" if path else name)
    return modules


def names_of(by_path: dict[str, torch.nn.Module]) -> dict[torch.nn.Module, str]:
    """Return the qualified name of every module below some roots; a shared one has its first name."""
    names: dict[torch.nn.Module, str] = {}
    for path, root in by_path.items():
        for name, module in root.named_modules():
            # torch.compile(module) wraps it; the wrapper and what it wraps are one module to a reader.
            parts = [part for part in (*path.split("."), *name.split(".")) if part not in ("", "_orig_mod")]
            names.setdefault(module, ".".join(parts))
    return names


@contextlib.contextmanager
def watching(names: dict[torch.nn.Module, str], around: Around) -> Iterator[None]:
    """Have every call of these modules made by `around`; `Module.__call__` itself is replaced, for a hook inside a compiled module is compiled along or ends the compiled region."""
    plain: Callable[..., Any] = torch.nn.Module.__call__

    def watched(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling() or (name := names.get(module)) is None:
            return plain(module, *args, **kwargs)
        return around(name, module, (args, kwargs), lambda: plain(module, *args, **kwargs))

    with patch.object(torch.nn.Module, "__call__", watched):
        yield


def noting(module: str, owner: str, method: str, note: Callable[[Any], object]) -> AbstractContextManager[Any]:
    """Have `note` get the object of each call of a method when that call has ended; nothing is noted of a class that is not loaded."""
    kind = getattr(sys.modules.get(module), owner, None)
    plain: Any = getattr(kind, method, None)
    if plain is None:
        return contextlib.nullcontext()

    @functools.wraps(plain)
    def noted(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = plain(self, *args, **kwargs)
        note(self)
        return result

    return patch.object(kind, method, noted)


def _code_of(value: Any) -> tuple[type, set[Any]]:
    own = object.__getattribute__(value, "__dict__") if hasattr(value, "__dict__") else {}
    return type(value), {name for name, held in own.items() if type(name) is str and callable(held)}


def _place(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Return where and how a tensor lies, and whether it requires a gradient; a parameter's address may change, as cuDNN moves weights together."""
    return tensor.requires_grad, tensor.shape, tensor.stride(), type(tensor) is torch.Tensor and tensor.data_ptr()


class InputForms:
    """The form of inputs besides their values: the class and functions of each object; whether modules train, and their parameters, parts and hooks; the place of each tensor."""

    def __init__(self, tree: Any, *, own: bool = False) -> None:
        """Take notice of inputs; where they are an implementation's `own`, the places of tensors do not count."""
        found = {} if own else named_tensors(tree)
        self._places = {path: (one, one.detach(), _place(one)) for path, one in found.items() if has_address(one)}
        self._modules = {path: value for path, value, _ in nodes(tree) if isinstance(value, torch.nn.Module)}
        self._code = {path: (value, *_code_of(value)) for path, value, _ in nodes(tree) if hasattr(value, "__dict__")}
        self._were = {path: _form(module) for path, module in self._modules.items()}

    def places(self) -> list[Any]:
        return [_place(tensor) if has_address(tensor) else None for tensor, _, _ in self._places.values()]

    def changed(self, when: str = "") -> str | None:
        """Return a sentence on the first input whose form has changed, or None, and restore all; `when` is put into the sentence, with a space before it."""
        found = []
        for path, (tensor, before, place) in self._places.items():
            if has_address(tensor) and (now := _place(tensor)) != place:
                if now[1:] != place[1:]:
                    found.append(f"gives {path!r}, a tensor among its inputs, other memory or strides")
                tensor.detach_().data = before
                tensor.requires_grad_(place[0])  # without a word: sloppy code asks for gradients of its inputs
        for path, (value, its_class, functions) in self._code.items():
            if type(value) is not its_class or _code_of(value)[1] != functions:
                found.append(f"gives {path!r}, an object among its inputs, another class or functions of its own")
                object.__setattr__(value, "__class__", its_class)
                for name in _code_of(value)[1] - functions:
                    del vars(value)[name]
        for path, module in self._modules.items():
            training, were = self._were[path]
            if module.training != training:
                found.append(f"switches {path!r}, a module among its inputs, to {'eval' if training else 'train'}()")
                module.training = training
            for kind, was in were.items():
                held = vars(module)[kind]
                if held.keys() != was.keys() or (kind == "_modules" and any(held[key] is not was[key] for key in was)):
                    what = f"a {_REGISTERED[kind]} of {path!r}, a module among its inputs"
                    found.append(f"adds, removes or replaces {what}")
                    held.clear()
                    held.update(was)
        if not found:
            return None
        return f"{found[0]}{when}; an operator leaves the form of its inputs as it is, for its caller goes on with them"


def _form(module: torch.nn.Module) -> tuple[bool, dict[str, dict[Any, Any]]]:
    held = {kind: vars(module).get(kind) for kind in _REGISTERED}
    return module.training, {kind: dict(value) for kind, value in held.items() if isinstance(value, dict)}


class TransparentMode(TorchDispatchMode):
    """A dispatch mode in which flex attention and compiled code run as outside of it; torch's compiler, whose import takes seconds, is not loaded only to be kept off `__torch_dispatch__`."""

    supports_higher_order_operators = True  # flex attention is such an operator, and fails inside a mode without this

    def __init_subclass__(cls, **kwargs: Any) -> None:
        cls._plain = cls.__torch_dispatch__
        super().__init_subclass__(**kwargs)

    def __enter__(self) -> Self:
        if "torch._dynamo" not in sys.modules:
            # Of this instance alone: the class is among what no suite may replace.
            self.__dict__["__torch_dispatch__"] = self._plain
        super().__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self.__dict__.pop("__torch_dispatch__", None)

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Let compiled code run as such; inside any other mode torch runs the original, now and from then on."""
        return True

    is_infra_mode = ignore_compile_internals  # what torch 2.6 asks
