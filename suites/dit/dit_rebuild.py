"""A network rebuilt with other kinds of modules around the same weights, so that a faster form costs no second copy of them."""

import copy


def rebuilt(module, kinds):
    """Return a copy of a tree of modules in which every module is of the kind that stands for its own.

    Parameters and buffers are those of the original. A kind with a method `adopt` has it called, children first, to lay out
    anew what it wants otherwise.
    """
    new = copy.copy(module)
    new.__class__ = kinds.get(type(module), type(module))
    for name, value in list(vars(new).items()):
        if isinstance(value, dict | set):  # parameters, buffers, hooks: not those of the original
            vars(new)[name] = value.copy()
    for name, child in list(new.named_children()):
        new._modules[name] = rebuilt(child, kinds)  # noqa: SLF001, setattr would take lists of modules apart
    if hasattr(new, "adopt"):
        new.adopt()
    return new
