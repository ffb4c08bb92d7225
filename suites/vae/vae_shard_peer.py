"""A process that has one slab of the pixels, beside the one that is called: `vae_shard_team` starts it and tells it what to do.

It ends with that process, however that ends: when the line between them closes, or by the kernel's signal.
"""

import ctypes
import datetime as dt
import os
import signal
import sys
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

import torch
import torch.distributed as dist

if __package__:
    import vae_shard_forms
else:
    # The team starts this file by its plain name. What is sent to it is of the module that the team has, so it becomes that.
    from pairbench.suite.modules import load_module

    sys.modules[__name__] = load_module(Path(__file__).resolve())

TIMEOUT = dt.timedelta(minutes=10)
"""The most that processes wait for one another; who calls has a shorter limit of its own."""


class Join(NamedTuple):
    """Asks to become part of the team."""

    rank: int
    size: int
    port: int
    """Of the store on this host where all find one another."""
    kind: str
    """cuda or cpu."""
    threads: int


class Load(NamedTuple):
    """Asks to take weights over, in place of earlier ones."""

    size: int
    """Of the part of the team that gets them."""
    tree: object
    """The weights with each tensor's shape and dtype in its place."""
    flags: dict


class Decode(NamedTuple):
    """Asks to take part in decoding a clip."""

    lengths: tuple
    axis: int
    shape: tuple
    """Of this process's latents."""
    dtype: torch.dtype
    steps: list


class Peaks(NamedTuple):
    """Asks for the peak of allocated bytes above what was there, since it was asked last."""


class Failed(NamedTuple):
    """Says why this process ends."""

    reason: str
    lost: bool
    """Whether another one ended before."""


class LostError(RuntimeError):
    """Another process of the team is gone, or does something else."""


class Shape(NamedTuple):
    """A tensor without its values."""

    shape: tuple
    dtype: torch.dtype


def join(store, order):
    """Become part of the team, and return its groups: those of the first two processes, the first three, and so on."""
    backend = "nccl" if order.kind == "cuda" else "gloo"
    dist.init_process_group(backend, store=store, rank=order.rank, world_size=order.size, timeout=TIMEOUT)
    return {size: dist.new_group(list(range(size)), timeout=TIMEOUT) for size in range(2, order.size + 1)}


def exchange_in(group):
    """Return the `exchange` of a `Slab`. On a GPU it is queued behind what is in the current stream, and awaited by that alone."""

    def exchange(sends, receives):
        orders = [dist.P2POp(dist.isend, tensor, rank, group) for rank, tensor in sends.items()]
        orders += [dist.P2POp(dist.irecv, tensor, rank, group) for rank, tensor in receives.items()]
        if not orders:
            return
        try:
            for work in dist.batch_isend_irecv(orders):
                work.wait()
        except RuntimeError as error:
            raise LostError(str(error)) from error

    return exchange


def spread(tensor, group):
    """Give a contiguous tensor of the first process to all of a group, as bytes: not every backend knows every dtype."""
    try:
        dist.broadcast(tensor.view(-1).view(torch.uint8), 0, group)
    except RuntimeError as error:
        raise LostError(str(error)) from error


def read_flags():
    """Return what has a say in which kernels are taken, and with which precision."""
    return {
        "matmul": torch.backends.cuda.matmul.allow_tf32,
        "conv": torch.backends.cudnn.allow_tf32,
        "benchmark": torch.backends.cudnn.benchmark,
        "deterministic": torch.backends.cudnn.deterministic,
    }


def set_flags(flags):
    """Have the same flags as the process that is called."""
    torch.backends.cuda.matmul.allow_tf32 = flags["matmul"]
    torch.backends.cudnn.allow_tf32 = flags["conv"]
    torch.backends.cudnn.benchmark = flags["benchmark"]
    torch.backends.cudnn.deterministic = flags["deterministic"]


class Peer:
    """What this process has of a team."""

    def __init__(self, order):
        self.rank = order.rank
        self.device = torch.device(f"cuda:{order.rank}" if order.kind == "cuda" else "cpu")
        if order.kind == "cuda":
            torch.cuda.set_device(self.device)
        torch.set_num_threads(order.threads)
        store = dist.TCPStore("127.0.0.1", order.port, order.size, is_master=False, timeout=TIMEOUT)
        self.groups = join(store, order)
        self.weights = None

    def load(self, order):
        """Take weights over; the first process has them."""
        self.weights = None
        if self.device.type == "cuda":
            torch.cuda.empty_cache()  # other cases begin
        set_flags(order.flags)

        def receive(item):
            if isinstance(item, Shape):
                tensor = torch.empty(item.shape, dtype=item.dtype, device=self.device)
                spread(tensor, self.groups[order.size])
                return tensor
            if isinstance(item, dict):
                return {name: receive(inner) for name, inner in item.items()}
            return [receive(inner) for inner in item]

        self.weights = receive(order.tree)

    def decode(self, order):
        """Decode this process's slab, and send the frames of each step to the first process."""
        exchange = exchange_in(self.groups[len(order.lengths)])
        slab = vae_shard_forms.Slab(self.rank, order.lengths, order.axis, exchange)
        latents = torch.empty(order.shape, dtype=order.dtype, device=self.device)
        exchange({}, {0: latents})
        vae_shard_forms.decode_slab(
            slab, latents, self.weights, order.steps, lambda _, frames: exchange({0: frames.contiguous()}, {})
        )

    def peaks(self):
        """Return what the weights take, and the peak above them, in bytes; both 0 on a CPU."""
        if self.device.type != "cuda":
            return 0, 0
        torch.cuda.synchronize(self.device)
        held, peak = torch.cuda.memory_allocated(self.device), torch.cuda.max_memory_allocated(self.device)
        torch.cuda.reset_peak_memory_stats(self.device)
        return held, peak - held


def serve(connection):
    """Do what is asked until the line closes."""
    peer = None
    while True:
        try:
            order = connection.recv()
        except (EOFError, ConnectionError):
            return
        match order:
            case Join():
                peer = Peer(order)
            case Load():
                peer.load(order)
            case Decode():
                peer.decode(order)
            case Peaks():
                connection.send(peer.peaks())


def main(descriptor, parent):
    """Serve one process until it hangs up; say why, if anything goes wrong."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "prctl"):
        libc.prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:
        os._exit(1)
    connection = Connection(descriptor)
    connection.send("ready")
    try:
        with torch.no_grad():
            serve(connection)
    except BaseException as error:  # noqa: BLE001, whatever it is ends this process, and is told
        text = str(error).strip().partition("\n")[0]
        connection.send(Failed(f"{type(error).__name__}: {text}", isinstance(error, LostError)))
        os._exit(1)
    os._exit(0)  # at once: there is nobody left to say goodbye to
