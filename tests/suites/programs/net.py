"""A program to be captured: a small net with a norm, views of one buffer, an operator of its own and a call in place, in several ways."""

# mypy: ignore-errors
import os
import signal
import subprocess
import sys
import time

import torch
import torch.nn.functional as F


@torch.library.custom_op("captured_net::doubled", mutates_args=())
def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2


doubled.register_autograd(lambda _, gradient: gradient * 2)


class Norm(torch.nn.Module):
    def __init__(self, width: int, *, index: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


class Net(torch.nn.Module):
    def __init__(self, width: int = 32, depth: int = 3) -> None:
        super().__init__()
        self.norms = torch.nn.ModuleList(Norm(width, index=index) for index in range(depth))
        self.ups = torch.nn.ModuleList(torch.nn.Linear(width, 3 * width) for _ in range(depth))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for norm, up in zip(self.norms, self.ups, strict=True):
            q, k, v = up(norm(x)).chunk(3, -1)
            x = x + F.scaled_dot_product_attention(q, k, v)
        return torch.ops.captured_net.doubled(x).clamp_(-3, 3)


def train(steps: int) -> float:
    torch.manual_seed(0)
    net, x = Net(), torch.randn(2, 8, 32)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    for _ in range(steps):
        F.dropout(net(x), 0.5).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return sum(weight.double().sum().item() for weight in net.parameters())


def infer(steps: int, device: str = "cpu", width: int = 32) -> float:
    torch.manual_seed(0)
    net, x = Net(width).to(device), torch.randn(2, 8, width, device=device)
    with torch.inference_mode(), torch.autocast(device, torch.bfloat16):
        return sum(net(x).double().sum().item() for _ in range(steps))


if __name__ == "__main__":
    way = sys.argv[1]
    ways = {"train": lambda: train(3), "cuda": lambda: infer(64, "cuda", 1024)}
    print("result", ways.get(way, lambda: infer(4))())
    if way == "several":
        subprocess.run([sys.executable, __file__, "infer"], check=True)
    if way == "raises":
        raise ValueError("after its last call")
    if way == "killed":
        time.sleep(3)  # in which a part is written
        os.kill(os.getpid(), signal.SIGKILL)
    while way == "forever":
        infer(1)
