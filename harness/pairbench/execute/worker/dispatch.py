"""The base of modes that see every operator as it is dispatched, and change nothing about how it runs."""

from torch.utils._python_dispatch import TorchDispatchMode


class TransparentMode(TorchDispatchMode):
    """A dispatch mode in which flex attention and compiled code run as they do outside of it."""

    supports_higher_order_operators = True
    """Flex attention is such an operator, and fails inside of a mode that does not declare this."""

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Let compiled code run as such; inside any other mode torch runs the original, now and from then on."""
        return True
