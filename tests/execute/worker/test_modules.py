import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import nn

from pairbench.execute.worker.modules import InputForms, names_of, roots, watching


@dataclass
class Held:
    net: nn.Module
    other: int = 1


class Told:
    def __init__(self) -> None:
        self.events: list[str] = []

    def __call__(self, name: str, module: nn.Module, inputs: Any, call: Callable[[], Any]) -> Any:
        self.events.append(f"+{name}")
        outputs = call()
        self.events.append(f"-{name}")
        return outputs


def test_modules_are_found_in_dicts_lists_and_dataclasses_under_their_first_names() -> None:
    first, second, third = nn.Linear(2, 2), nn.ReLU(), nn.Sequential(nn.Linear(2, 2))
    tree = {"x": torch.zeros(2), "weights": {"net": first, "n": 3}, "pair": [1, second], "held": Held(net=third)}
    assert roots(tree) == {"weights.net": first, "pair.1": second, "held.net": third}
    assert names_of(roots(tree)) == {
        first: "weights.net",
        second: "pair.1",
        third: "held.net",
        third[0]: "held.net.0",
    }
    assert roots({"x": torch.zeros(2), "y": "text"}) == {}
    shared = nn.Linear(2, 2)
    assert names_of(roots({"a": nn.Sequential(shared), "b": shared}))[shared] == "a.0"


def test_calls_are_told_in_order_and_only_inside() -> None:
    net = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    told, plain = Told(), nn.Module.__call__
    with watching(names_of({"net": net}), told):
        net(torch.zeros(1, 2))
        nn.Identity()(torch.zeros(1))  # is nobody's
    net(torch.zeros(1, 2))
    assert told.events == ["+net", "+net.0", "-net.0", "+net.1", "-net.1", "-net"]
    assert nn.Module.__call__ is plain


def test_a_compiled_module_is_one_call_and_stays_compiled() -> None:
    torch._dynamo.reset()
    graphs: list[int] = []

    def backend(graph: Any, _: Any) -> Any:
        graphs.append(len(graph.graph.nodes))
        return graph.forward

    net = torch.compile(nn.Sequential(nn.Linear(2, 2), nn.ReLU()), backend=backend)
    net(torch.zeros(1, 2))
    told = Told()
    with watching(names_of({"net": net}), told):
        net(torch.zeros(1, 2))
    assert told.events == ["+net", "-net"]
    assert len(graphs) == 1, "watching it has compiled it again"


CHANGES: dict[str, Callable[[Any], object]] = {
    r"switches 'm', a module among its inputs, to eval\(\)": lambda m: m.eval(),
    r"switches 'm\.1', a module among its inputs, to eval\(\)": lambda m: m[1].eval(),
    "adds, removes or replaces a hook of 'm.0'": lambda m: m[0].register_forward_hook(lambda *_: None),
    "adds, removes or replaces a parameter of 'm'": lambda m: setattr(m, "extra", nn.Parameter(torch.zeros(1))),
    "adds, removes or replaces a module of 'm'": lambda m: m.__setitem__(1, nn.Identity()),
}


@pytest.mark.parametrize("words", CHANGES)
def test_what_a_module_is_may_not_change_and_is_put_back(words: str) -> None:
    net = nn.Sequential(nn.Linear(2, 2), nn.Dropout())
    forms = InputForms({"m": net})
    net.cached = torch.zeros(1)  # what it keeps for itself is its own
    assert forms.changed() is None
    CHANGES[words](net)
    said = forms.changed(" as it is timed")
    assert said is not None and re.search(f"{words}.* as it is timed; an operator leaves the form", said)
    assert forms.changed() is None and list(net.state_dict()) == ["0.weight", "0.bias"] and net[1].training
