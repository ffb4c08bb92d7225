"""Calls that are captured as CUDA graphs when they are first made, and replayed from then on.

The harness's mode `graph` does the same for any call that can be captured, and has speedups against a baseline that it has captured
too. The published network cannot be: so a captured one is compared with it as an implementation of its own.

What Python knew when the graph was made is in it, as which frames are decoded: a stream of blocks would keep such numbers in
memory, or a graph for each block of a turn.
"""

import torch

from ..common.kernels_opaque import opaque

WARM_UP = 3


class Graphs:
    """The graph of the newest call, and the addresses that it reads and writes."""

    def __init__(self):
        self.key, self.graph, self.outputs = None, None, None

    def replay(self, call, inputs, state):
        """Return what a call returns, by its graph; the same tensors each time.

        Args:
            call: Reads and writes the same memory whenever the addresses of its tensors are the same.
            inputs: The tensors that it reads.
            state: Those that it changes; making the graph leaves them as one call does.
        """
        if torch.cuda.is_current_stream_capturing():
            return call()
        key = tuple(tensor.data_ptr() for tensor in (*inputs, *state))
        if key != self.key:
            self.graph, self.outputs = captured(call, state)
            self.key = key
        self.graph.replay()
        return self.outputs


def captured(call, state):
    """Return a call's graph and the tensors that it writes its result to; the state stays what it was."""
    before = [tensor.clone() for tensor in state]
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(WARM_UP):
            call()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outputs = call()
    for tensor, value in zip(state, before, strict=True):
        tensor.copy_(value)
    return graph, outputs


@opaque
def replayed(graphs, call, inputs, state):
    """Replay a call; torch.compile has nothing to do with it."""
    return graphs.replay(call, inputs, state)
