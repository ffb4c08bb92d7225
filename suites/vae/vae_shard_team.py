"""The processes that decode one clip together, one for each GPU, as the process that is called has them.

On a CPU they speak gloo, so that all of it can be tried there; on GPUs NCCL, and all of it is queued in the current stream.
They start when weights are prepared for them, and stay: starting takes seconds. They end with this process, with
the first of them that fails, and when more of them are wanted than there are.
"""

import atexit
import contextlib
import os
import socket
import subprocess
import sys
import threading
import time
from multiprocessing.connection import Connection
from pathlib import Path

import torch
import torch.distributed as dist
import vae_clip as clip
import vae_shard_peer as peer_side
import vae_wan
from vae_shard_forms import Slab, cut, decode_slab, parts

from ..common.kernels_opaque import opaque

START = (
    "import sys, torch; sys.path.insert(0, sys.argv[1]); import vae_shard_peer as p; p.main(*map(int, sys.argv[2:]))"
)
"""This folder comes first only once torch is there, lest a file in it pass for a library that torch imports."""

GRACE_S = 5.0
"""What a call may still take on the device when a process of its team is gone."""

ENVIRONMENT = {
    # Halos and gathered keys use no multicast, for which NCCL would set memory aside on every GPU.
    "NCCL_NVLS_ENABLE": "0",
    # They are all on this host, whatever its name resolves to.
    "GLOO_SOCKET_IFNAME": "lo",
}


class Team:
    """Some processes, this one first."""

    def __init__(self, size, device):
        """Start the others.

        Raises:
            RuntimeError: there are not enough GPUs, or a process does not start.
        """
        if dist.is_initialized():
            raise RuntimeError("something else of this process has initialised torch.distributed")
        if device.type == "cuda" and torch.cuda.device_count() < size:
            raise RuntimeError(f"{size} GPUs are wanted, {torch.cuda.device_count()} are visible")
        self.size, self.device = size, device
        self.loaded = {}
        """Which weights each of the others has."""
        self.broken = None
        """Why no further call is possible, if so."""
        self._calling = False
        self._telling = threading.Lock()
        self._done = torch.cuda.Event() if device.type == "cuda" else None
        if self._done is not None:
            self._done.record()
        for name, value in ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        self.processes, self._lines = [], []
        try:
            for _ in range(1, size):
                self._start()
            self._join()
        except BaseException:
            self.close()
            raise
        for process in self.processes if device.type == "cuda" else ():
            threading.Thread(target=self._watch, args=[process], daemon=True).start()

    def _start(self):
        ours, theirs = socket.socketpair()
        with theirs:
            folder = str(Path(peer_side.__file__).parent)
            command = [sys.executable, "-P", "-c", START, folder, str(theirs.fileno()), str(os.getpid())]
            environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
            process = subprocess.Popen(command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, env=environment)
        self.processes.append(process)
        self._lines.append(Connection(ours.detach()))

    def _join(self):
        for rank, line in enumerate(self._lines, start=1):
            try:
                line.recv()
            except (EOFError, ConnectionError):
                code = self.processes[rank - 1].wait()
                raise RuntimeError(f"process {rank} of {self.size} does not start: exit status {code}") from None
        store = dist.TCPStore("127.0.0.1", 0, self.size, is_master=True, wait_for_workers=False)
        kind = self.device.type
        self.threads = max(1, torch.get_num_threads() // self.size)
        self._tell(self.size, lambda rank: peer_side.Join(rank, self.size, store.port, kind, self.threads))
        with self._explained():
            self.groups = peer_side.join(store, peer_side.Join(0, self.size, store.port, kind, self.threads))

    def load(self, weights, version, size):
        """Give weights to the first so many processes, unless they have them."""
        if all(self.loaded.get(rank) == version for rank in range(1, size)):
            return
        self.loaded.update(dict.fromkeys(range(1, size)))
        order = peer_side.Load(size, _outline(weights), peer_side.read_flags())
        with self._explained():
            self._tell(size, lambda _: order)
            for tensor in vae_wan.leaves(weights):
                peer_side.spread(tensor.contiguous(), self.groups[size])
        self.loaded.update(dict.fromkeys(range(1, size), version))

    def decode(self, latents, weights, steps, size):
        """Decode a clip, each process a slab of it."""
        if self._done is not None and torch.cuda.is_current_stream_capturing():
            raise RuntimeError("each of several processes would have to capture its own part")
        axis, lengths = cut(*latents.shape[3:], size)
        slabs = [slab.contiguous() for slab in parts(latents, lengths, axis)]
        exchange = peer_side.exchange_in(self.groups[size])
        video = clip.empty_video(latents)

        def hand_over(at, frames):
            views = parts(video[:, :, at : at + frames.shape[2]], lengths, axis)
            arrived = {rank: torch.empty_like(views[rank], memory_format=torch.contiguous_format) for rank in others}
            exchange({}, arrived)
            for view, part in zip(views, (frames, *arrived.values()), strict=True):
                view.copy_(part)

        others = range(1, size)
        with self._explained(), self._share_of_the_cores():
            self._tell(
                size,
                lambda rank: peer_side.Decode(lengths, axis, tuple(slabs[rank].shape), latents.dtype, steps),
            )
            exchange({rank: slabs[rank] for rank in others}, {})
            decode_slab(Slab(0, lengths, axis, exchange), slabs[0], weights, steps, hand_over)
        return video

    def peaks(self):
        """Return for each of the others what its weights take, and its peak above them since it was asked last, in bytes."""
        self._tell(self.size, lambda _: peer_side.Peaks())
        return [line.recv() for line in self._lines]

    def _tell(self, size, order_for):
        if self.broken:
            raise RuntimeError(self.broken)
        for rank, line in enumerate(self._lines[: size - 1], start=1):
            line.send(order_for(rank))

    @contextlib.contextmanager
    def _explained(self):
        """Raise what another process says of its end, where that is why this one cannot go on; end the team either way."""
        self._calling = True
        try:
            yield
        except BaseException as error:
            if not isinstance(error, peer_side.LostError | ConnectionError):
                self.broken = self.broken or f"a call failed in the middle: {error}"
                raise
            self._note(f"a process of the team is gone: {error}")
            raise RuntimeError(self.broken) from error
        finally:
            if self._done is not None:
                self._done.record()
            self._calling = False
            if self.broken:
                self.close()

    @contextlib.contextmanager
    def _share_of_the_cores(self):
        """On a CPU take no more threads than the others: while this one waits, its own would spin where they work."""
        before = torch.get_num_threads()
        if self.device.type == "cpu":
            torch.set_num_threads(self.threads)
        try:
            yield
        finally:
            torch.set_num_threads(before)

    def _note(self, otherwise):
        """Note why the team has ended: what the first that failed says, if any does."""
        with self._telling:
            self.broken = self.broken or self._last_words() or otherwise

    def _last_words(self):
        found = []
        for rank, line in enumerate(self._lines, start=1):
            with contextlib.suppress(EOFError, OSError):
                while line.poll(1.0):
                    word = line.recv()
                    if isinstance(word, peer_side.Failed) and not word.lost:
                        found.append(f"process {rank} of {self.size} failed: {word.reason}")
        for rank, process in enumerate(self.processes, start=1):
            if process.poll() not in (None, 0, 1):
                found.append(f"process {rank} of {self.size} ended with status {process.poll()}")
        return next(iter(found), None)

    def _watch(self, process):
        """End this process if another has ended and the device waits for it: nothing else would end such a call.

        In a thread that sleeps until then, because whoever calls may be waiting for the device himself.
        """
        process.wait()
        self._note("a process of the team is gone")
        self._end_if_stuck()

    def _end_if_stuck(self):
        """End this process unless its device soon gets through with all that was called."""
        until = time.monotonic() + GRACE_S
        while time.monotonic() < until:
            if not self._calling:
                try:
                    through = self._done.query()
                except RuntimeError:
                    through = True  # with an error, which whoever waits for the device is told
                if through:
                    return
            time.sleep(0.05)
        sys.stderr.write(f"fatal: {self.broken}\n")
        sys.stderr.flush()
        os._exit(1)

    def close(self):
        """End the other processes; and this one, if its device waits for them."""
        self.broken = self.broken or "it was closed"
        for process in self.processes:
            process.kill()
            process.wait()
        with self._telling:
            for line in self._lines:
                line.close()
        if self.device.type == "cuda":
            self._end_if_stuck()
        if not dist.is_initialized():
            return
        if self.device.type == "cuda":
            # To destroy a group properly takes all of its processes.
            dist.distributed_c10d._abort_process_group()  # noqa: SLF001, it has no other name
        else:
            dist.destroy_process_group()


_team = None


def team_of(size, device):
    """Return a team of at least so many processes: the one there is, or a new one."""
    global _team  # noqa: PLW0603, a process has one torch.distributed
    if _team is None or _team.broken or _team.size < size:
        if _team is not None:
            _team.close()
        # All the GPUs that this process was given; a team on a CPU grows.
        _team = Team(max(size, torch.cuda.device_count()) if device.type == "cuda" else size, device)
    return _team


@opaque
def decode_in(size, latents, weights, steps, version):
    """Decode a clip in so many processes, which have these weights unless others were loaded since."""
    team = team_of(size, latents.device)
    team.load(weights, version, size)
    return team.decode(latents, weights, steps, size)


def load(size, weights):
    """Give weights to so many processes, and return their version as a tensor of the host's."""
    version = version_of(weights)
    team_of(size, weights["norm_out"].device).load(weights, version, size)
    return torch.tensor(version)


@atexit.register
def _end():
    if _team is not None:
        _team.close()


def _outline(tree):
    """Return a tree of weights without their values."""
    if isinstance(tree, dict):
        return {name: _outline(item) for name, item in tree.items()}
    if isinstance(tree, list):
        return [_outline(item) for item in tree]
    return peer_side.Shape(tuple(tree.shape), tree.dtype)


def version_of(weights):
    """Return a number that other weights do not have, from all of their bits."""
    found = []
    for tensor in vae_wan.leaves(weights):
        bits = tensor.contiguous().view(-1).view({2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.itemsize])
        order = torch.arange(1, 1 + bits.numel(), device=bits.device)
        found.append((*tensor.shape, str(tensor.dtype), int((bits * order).sum())))
    return hash(tuple(found))
