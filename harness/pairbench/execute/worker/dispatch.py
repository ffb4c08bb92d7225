"""The base of modes that see every operator as it is dispatched, and change nothing about how it runs."""

import sys
from typing import Any, Self

from torch.utils._python_dispatch import TorchDispatchMode


class TransparentMode(TorchDispatchMode):
    """A dispatch mode in which flex attention and compiled code run as outside of it; torch's compiler, whose import takes seconds, is not loaded only to be kept off `__torch_dispatch__`."""

    supports_higher_order_operators = True
    """Flex attention is such an operator, and fails inside of a mode without this."""

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
