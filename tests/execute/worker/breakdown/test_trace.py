import pytest

from pairbench.execute.worker.breakdown.passes import idle_of
from pairbench.execute.worker.breakdown.trace import (
    graph_launches,
    labelled,
    module_of,
    operators_of,
    pieces,
    read_windows,
    spots_by_span,
)
from pairbench.execute.worker.profile import TraceError
from tests.execute.traces import Trace


@pytest.mark.parametrize("threads_of_runtime", [1, 4711])  # a runtime may number threads otherwise
def test_a_kernel_belongs_to_the_module_and_operators_that_launched_it(threads_of_runtime: int) -> None:
    trace = Trace()
    inner = trace.module("net.norm", trace.op("layer_norm", trace.op("native_layer_norm", trace.launch("ln", 100))))
    trace.call(trace.module("net", inner, trace.op("mul", trace.launch("mul", 110))), trace.launch("own", 120))
    for event in trace.events:
        if event["cat"] == "cuda_runtime":
            event["tid"] = threads_of_runtime
    (window,) = read_windows(trace.events, 1)
    found = [
        (item.name, module_of(item.launch.path()), operators_of(item.launch.path()), item.ns)
        for item in window.activities
        if item.launch
    ]
    assert found == [
        ("ln", "net.norm", ("layer_norm", "native_layer_norm"), 5000),
        ("mul", "net", ("mul",), 5000),
        ("own", "", (), 5000),
    ]


def test_what_is_outside_of_a_call_is_not_its_work() -> None:
    trace = Trace()
    trace.launch("before", 50)()
    trace.call(trace.launch("first", 100))
    trace.launch("between", 120)()
    trace.call(trace.launch("second", 150))
    windows = read_windows(trace.events, 2)
    assert [[item.name for item in window.activities] for window in windows] == [["first"], ["second"]]


def test_a_kernel_that_nobody_is_known_to_have_launched_belongs_to_the_call_it_ran_in() -> None:
    trace = Trace()
    trace.call(trace.op("copy_", trace.launch("Memcpy DtoD", 100, category="gpu_memcpy")))
    trace.device("unknown", 110, correlation=99)
    (window,) = read_windows(trace.events, 1)
    assert [(item.name, item.launch is None) for item in window.activities] == [
        ("Memcpy DtoD", False),
        ("unknown", True),
    ]
    (copy, lost) = pieces(list(labelled(window, window, {})))
    assert (copy.count, copy.launches) == (1, 0), "copies are no launches"
    assert not lost.known and lost.kernel == "unknown"


def test_lost_calls_and_lost_kernels_are_told() -> None:
    trace = Trace()
    trace.call()
    with pytest.raises(TraceError, match="1 of 2 calls"):
        read_windows(trace.events, 2)
    trace.device("void spin_kernel(long)", 10)
    with pytest.raises(TraceError, match="1 of 2 sentinel"):
        read_windows(trace.events, 1, sentinels=2)
    assert read_windows(trace.events, 1, sentinels=1)[0].activities == []


def test_a_graph_s_kernels_are_known_by_name_and_turn() -> None:
    marked = Trace()
    marked.call(
        marked.module("a", marked.op("mm", marked.launch("gemm", 100))),
        marked.module("b", marked.op("mm", marked.launch("gemm", 110)), marked.op("add", marked.launch("add", 120))),
    )
    replay = Trace()
    # The device may run another kernel in between, in another order.
    replay.call(replay.launch("gemm", 100, nodes=2))
    for event in [{"name": "add", "at": 105.0}, {"name": "new", "at": 120.0}]:
        replay.device(str(event["name"]), float(event["at"]), 1.0, 1)  # type: ignore[arg-type]
    (first,), (second,) = read_windows(marked.events, 1), read_windows(replay.events, 1)
    found = {(piece.kernel, piece.module, piece.known): piece for piece in pieces(list(labelled(second, first, {})))}
    assert found.keys() == {("gemm", "a", True), ("gemm", "b", True), ("add", "b", True), ("new", "", False)}
    assert len(graph_launches(second)) == 1 and all(piece.launches == 0 for piece in found.values())
    eager = pieces(list(labelled(first, first, {})))
    assert [piece.launches for piece in eager] == [1, 1, 1] and not graph_launches(first)


def test_a_device_that_waits_for_the_host_is_starved_and_one_that_is_fed_in_time_is_not() -> None:
    fed, starved = Trace(), Trace()
    fed.call(fed.launch("a", 100, 10), fed.launch("b", 111, 10), fed.launch("c", 115, 10))
    idle = idle_of(read_windows(fed.events, 1)[0])
    # c runs beside b: 100 to 110, 111 to 125.
    assert idle is not None and (idle.span_ns, idle.busy_ns, idle.starved_ns) == (25_000, 24_000, 0)
    late = [lambda: setattr(starved, "now", 150.0), starved.launch("b", 160)]
    starved.call(starved.launch("a", 100, 10), *late)
    idle = idle_of(read_windows(starved.events, 1)[0])
    assert idle is not None and (idle.starved_ns, idle.after_sync_ns, idle.span_ns) == (50_000, 0, 65_000)
    assert idle_of(read_windows([event for event in fed.events if event["pid"] == 1], 1)[0]) is None


def test_an_operator_inside_another_that_is_no_composition_is_not_its_own_dispatch() -> None:
    trace = Trace()
    # to and contiguous are compositions, and a dispatch mode sees what is inside; it sees addmm, and not what that copies.
    cast = trace.op("to", trace.op("_to_copy", trace.op("copy_", trace.launch("cast", 100))))
    product = trace.op("linear", trace.op("addmm", trace.op("copy_", trace.launch("bias", 110))))
    trace.call(cast, product, trace.op("copy_", trace.launch("written", 120)))
    (window,) = read_windows(trace.events, 1)
    spots = spots_by_span(window, ["aten::_to_copy", "aten::copy_"], [0, 1])
    found = {piece.kernel: piece.spot for piece in pieces(list(labelled(window, window, spots)))}
    assert found == {"cast": 0, "bias": None, "written": 1}
    # Where the numbers differ, nobody can say which is which.
    assert spots_by_span(window, ["aten::_to_copy", "aten::_to_copy"], [0, 1]) == {}
    # An overload that is a composition is told from the operator.
    trace = Trace()
    copy = trace.op("contiguous", trace.op("clone", trace.launch("inside", 100)))
    trace.call(trace.op("_upsample_nearest_exact2d", trace.op("_upsample_nearest_exact2d", copy)))
    (window,) = read_windows(trace.events, 1)
    assert spots_by_span(window, ["aten::clone"], [0]) == {}
    # What a compiled region dispatches is seen.
    trace = Trace()
    trace.call(lambda: trace.host("cpu_op", "Torch-Compiled Region: 0/0", trace.op("clone", trace.launch("copy", 100))))
    (window,) = read_windows(trace.events, 1)
    spots = spots_by_span(window, ["aten::clone"], [0])
    assert [piece.spot for piece in pieces(list(labelled(window, window, spots)))] == [0]
