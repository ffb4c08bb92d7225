"""A network of four blocks as modules, with a cast, a wait and a write into a cache that somebody is to find."""

import copy

import torch
from torch import nn

from pairbench import REASSOCIATED, Operator, Variant, grid


class Norm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * self.weight


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = Norm(width)
        self.q, self.k, self.v = (nn.Linear(width, width) for _ in range(3))
        self.ffn = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x, cache):
        h = self.norm(x)
        cache[:, : x.shape[1]] = self.k(h)
        x = x + torch.nn.functional.scaled_dot_product_attention(self.q(h), cache, self.v(h))
        return x + self.ffn(x)


class Net(nn.Module):
    def __init__(self, width, layers):
        super().__init__()
        self.blocks = nn.ModuleList(Block(width) for _ in range(layers))

    def forward(self, x, cache):
        for block in self.blocks:
            x = block(x, cache)
        return x


class CastingNorm(Norm):
    def forward(self, x):
        return super().forward(x.double()).to(x.dtype)  # the planted cast


def narrow(x):
    return x.half()


class HelpedNorm(Norm):
    def forward(self, x):
        narrow(x)  # the first caller
        narrow(x)  # the second caller
        return super().forward(x)


class WaitingBlock(Block):
    def forward(self, x, cache):
        if x.abs().amax().item() > 1e6:  # the planted wait
            raise ValueError
        return super().forward(x, cache)


class ShiftedLinear(nn.Linear):
    def forward(self, x):
        return super().forward(x) + 0.5  # the planted error


class LateBlock(Block):
    def forward(self, x, cache):
        return super().forward(x * 1.01, cache)  # in no module of its own


def changed(change):
    def prepare(net):
        net = copy.deepcopy(net)
        change(net)
        return {"net": net}

    return prepare


def of_class(module, wanted):
    module.__class__ = wanted


def help_norms(net):
    for block in net.blocks:
        of_class(block.norm, HelpedNorm)


def cast_norms(net):
    for block in net.blocks:
        of_class(block.norm, CastingNorm)


def wait_in_blocks(net):
    for block in net.blocks:
        of_class(block, WaitingBlock)


def pack(net):
    for block in net.blocks:
        block.fused = nn.Linear(4, 4)


def inputs(make, rows, width, layers, dtype):
    torch.manual_seed(make.seed)
    return {
        "x": make.normal(1, rows, width, dtype=dtype),
        "cache": make.zeros(1, rows, width, dtype=dtype),
        "net": Net(width, layers).to(make.device, getattr(torch, dtype)).requires_grad_(False),
    }


def forward(x, cache, net):
    return net(x, cache)


def without_modules(x, cache, net):
    for block in net.blocks:
        h = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * block.norm.weight
        cache[:, : x.shape[1]] = nn.functional.linear(h, block.k.weight, block.k.bias)
        q = nn.functional.linear(h, block.q.weight, block.q.bias)
        v = nn.functional.linear(h, block.v.weight, block.v.bias)
        x = x + nn.functional.scaled_dot_product_attention(q, cache, v)
        up = nn.functional.gelu(nn.functional.linear(x, block.ffn[0].weight, block.ffn[0].bias))
        x = x + nn.functional.linear(up, block.ffn[2].weight, block.ffn[2].bias)
    return x


def raises(x, cache, net):
    raise ArithmeticError("no such block")


network = Operator(
    "network",
    baseline=forward,
    variants={
        "same": Variant(forward, prepare=changed(pack)),
        "casts": Variant(forward, prepare=changed(cast_norms)),
        "helped": Variant(forward, prepare=changed(help_norms)),
        "waits": Variant(forward, prepare=changed(wait_in_blocks)),
        "wrong_ffn": Variant(forward, prepare=changed(lambda net: of_class(net.blocks[2].ffn[2], ShiftedLinear))),
        "wrong_between": Variant(forward, prepare=changed(lambda net: of_class(net.blocks[1], LateBlock))),
        "wrong_at_the_end": lambda x, cache, net: net(x, cache) + 1,
        "without_modules": without_modules,
        "raises": raises,
    },
    inputs=inputs,
    cases={
        "smoke": grid(rows=[8], width=[16], layers=[4], dtype=["float32", "bfloat16"]),
        "real": grid(rows=[64], width=[64], layers=[4], dtype=["float32"]),
    },
    constants=["net"],
    state=["cache"],
    tolerance=REASSOCIATED,
)

plain = Operator(
    "plain",
    baseline=lambda x: torch.softmax(x, -1),
    variants={"by_hand": lambda x: x.exp() / x.exp().sum(-1, keepdim=True)},
    inputs=lambda make, rows: {"x": make.normal(rows, 64)},
    cases=grid(rows=[16]),
)
