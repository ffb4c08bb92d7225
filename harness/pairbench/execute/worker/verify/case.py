"""Verifies that an entry's outputs are within tolerance of the baseline's, before it may be timed."""

import contextlib
import re
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import field, replace
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch.overrides import TorchFunctionMode

from pairbench.errors import DeclarationError
from pairbench.execute.worker import trees
from pairbench.execute.worker.calls import Call, bound, is_compiled, make_call, synchronize
from pairbench.execute.worker.flags import put_back_flags, watched_flags
from pairbench.execute.worker.graphs import CaptureError, Replay, memory_of_graphs
from pairbench.execute.worker.guard import SuiteFaultError, explain, is_out_of_memory
from pairbench.execute.worker.judge.plain import output_name, readable, refused
from pairbench.execute.worker.modules import InputForms, TransparentMode
from pairbench.execute.worker.training import accumulated
from pairbench.execute.worker.trees import copy_tree, distinct, dtype_name, has_room, leaves, tensors
from pairbench.execute.worker.verify.distance import SeenRandom
from pairbench.execute.worker.verify.judge import Known, OutputVerdict, aligned, furthest, judge, same_outputs, worst
from pairbench.model.case import SAVED, Case, Tolerance
from pairbench.model.operator import Operator, Variant
from pairbench.model.outcome import Compilation, Correctness, Status, Verification
from pairbench.model.plain import Value
from pairbench.model.plan import Entry

T = TypeVar("T")

_SMALL = 1024
_WIDEST = {torch.float32: torch.float64, torch.complex64: torch.complex128}
_RESUMED = re.compile(r"torch_dynamo_resume_in_(?P<name>.+)_at_(?P<line>\d+)")
"""The compiler's name of the frame after a break, with the line of the break."""
_FOLDER = re.compile(r'(?<=file ")/[^"]*/')  # folder of a file in a guard, which differs from machine to machine
_MOST = 100_000
_LIKE_EMPTY = ("empty_like", "empty_strided", "new_empty", "new_empty_strided")
_EMPTY = {torch.ops.aten.empty.memory_format, *(getattr(torch.ops.aten, name).default for name in _LIKE_EMPTY)}
_HANDED_BACK = 32 << 20
"""Size in bytes above which freed blocks of the host's memory go back to the kernel, and the next ones are zero."""


class ExpectedOutputs(Value):
    """The inputs of one seed, and a judge of their outputs; `judge.sent.OutsideReference` asks a judge outside, and holds no outputs."""

    make: Callable[[], dict[str, Any]]  # returns the inputs: those held, or where memory is short new ones
    outputs: Any | None = None
    """The expected outputs; None where they are computed at each use, or where only the judge outside has them."""
    oracle: Any | None = None
    oracle_missing: str | None = None
    """Why there is no oracle; None where there is one, or where only the judge outside knows."""
    varies_little: str | None = None
    """A sentence where outputs for other inputs are right as well, so that a wrong output may pass."""
    expect: Callable[[], Any] | None = None  # computes the outputs where memory is short
    known: Known = field(default_factory=Known)  # results on the outputs alone, and on their distance to the oracle

    @property
    def inputs(self) -> dict[str, Any]:
        return self.make()

    @property
    def note(self) -> str:
        return "; ".join(filter(None, [self.oracle_missing, self.varies_little]))

    @property
    def sparing(self) -> bool:
        """Whether memory is short, so that nothing is held that verification can do without."""
        return self.expect is not None

    def judge(self, outputs: Any, tolerance_for: Callable[[str, str], Tolerance]) -> OutputVerdict:
        if self.outputs is None and self.expect is not None:
            return judge(outputs, self.expect(), None, tolerance_for)
        return judge(outputs, self.outputs, self.oracle, tolerance_for, self.known)


References = tuple[ExpectedOutputs, ...]  # the expected outputs of a case, for each seed


def baseline_outputs(operator: Operator, inputs: dict[str, Any]) -> Any:
    """Return outputs and state of a call of the baseline, which may change the inputs."""
    return make_call(operator, operator.baseline, "eager", inputs).observe()


def make_expected(operator: Operator, inputs: dict[str, Any]) -> ExpectedOutputs:
    outputs = copy_tree(baseline_outputs(operator, trees.copy_inputs(inputs)))
    if why := refused(outputs):
        raise DeclarationError(why)
    _synchronize_all()
    oracle, missing = oracle_or_why(operator, inputs)
    make = lambda: inputs  # noqa: E731
    return ExpectedOutputs(make=make, outputs=outputs, oracle=oracle, oracle_missing=missing, known=Known(make))


def oracle_or_why(operator: Operator, inputs: dict[str, Any], *, needed: bool = False) -> tuple[Any | None, str | None]:
    """Return the float64 outputs to judge by, or why there are none; the operator's own oracle may raise, and if `needed` a lack of memory does."""
    if operator.draws:
        return None, f"random outputs are judged by mean and variance over {operator.draws} calls"
    try:
        oracle = oracle_outputs(operator, inputs)
        _synchronize_all()
    except BaseException as error:
        if needed if is_out_of_memory(error) else operator.oracle is not None:
            raise
        return None, f"no oracle: {explain(error)[1]}"
    return oracle, None


def oracle_outputs(operator: Operator, inputs: dict[str, Any]) -> Any:
    if operator.oracle is None:
        run = lambda: make_call(operator, operator.baseline, "eager", trees.upcast_inputs(inputs)).observe()  # noqa: E731
        return without_casts(run)
    exact = trees.upcast_inputs(inputs)
    if operator.direction:
        return make_call(operator, Variant(operator.oracle), "eager", exact).observe()
    if callable(operator.reset):
        bound(operator.reset, {name: exact[name] for name in operator.state})()
    outputs = bound(operator.oracle, exact)()
    state = {name: trees.as_outputs(exact[name]) for name in operator.state}
    return readable({"output": outputs, "state": state} if state else outputs)


def without_casts(run: Callable[[], T]) -> T:
    """Return what a call on float64 inputs returns without its casts to float32; with them if it raises without, as where it multiplies by a float32 tensor."""
    with contextlib.suppress(Exception), _StaysFloat64():
        return run()
    return run()


class _StaysFloat64(TorchFunctionMode):
    """Makes a float64 copy where a function casts a float64 tensor to float32, and raises where the bits of one are read."""

    def __torch_function__(self, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        first, kwargs = args[0] if args else None, kwargs or {}
        if func is torch.Tensor.float:
            func, kwargs = torch.Tensor.to, {**kwargs, "dtype": torch.float32}
        dtypes = {one for one in (*args, *kwargs.values()) if isinstance(one, torch.dtype)}
        if not dtypes or not isinstance(first, torch.Tensor) or first.dtype not in _WIDEST.values():
            return func(*args, **kwargs)
        if func is torch.Tensor.view and any(one.itemsize != first.itemsize for one in dtypes):
            raise TypeError("reads the bits of a float32 number")
        wide = [_WIDEST.get(one, one) if isinstance(one, torch.dtype) else one for one in (*args, *kwargs.values())]
        made = func(*wide[: len(args)], **dict(zip(kwargs, wide[len(args) :], strict=True)))
        return made.clone() if made is first and _WIDEST.keys() & dtypes else made


def why_useless(operator: Operator, case: Case, references: References, more: Iterable[dict[str, Any]]) -> str | None:
    """Return why the outputs cannot tell right from wrong, or None: there are none, or they are the same whatever the inputs are (`more` of them where outputs are small)."""
    first, second = references
    if not [leaf for _, leaf in leaves(first.outputs) if leaf is not None]:
        advice = "return the outputs, or name the inputs that a call writes its results into: state=['out']"
        return f"returns nothing to compare, and no state is declared, so anything passes: {advice}"
    if operator.accepts_constant or case.tier == "edge" or not _size(first.outputs):
        return None
    if same_outputs(first.inputs, second.inputs) or not same_outputs(first.outputs, second.outputs):
        return None
    if is_small(first.outputs):
        for inputs in more:
            if not same_outputs(first.outputs, baseline_outputs(operator, inputs)):
                return None
    made, wider = "have inputs() make inputs on which it depends", "a wider dtype if it only rounds to the same value"
    advice = f"{made}, return it in {wider}, or declare accepts_constant=True if that is meant"
    return f"the output is the same for all inputs, so anything passes that returns it: {advice}"


def is_small(outputs: Any) -> bool:
    """Return whether outputs may be the same for two seeds by chance, as the index of the largest of a few."""
    return _size(outputs) <= _SMALL


def _size(outputs: Any) -> int:
    found = [leaf for _, leaf in leaves(outputs) if leaf is not None]
    return sum(leaf.numel() if isinstance(leaf, torch.Tensor) else 1 for leaf in found)


def check_baseline(reference: ExpectedOutputs, tolerance_for: Callable[[str, str], Tolerance]) -> str | None:
    """Return why the baseline itself is wrong by the oracle, or None: an error of more than the square root of its dtype's epsilon, or of TF32's spacing where allowed, is no rounding."""
    if reference.oracle is None:
        return None
    outputs = [(path, leaf) for path, leaf in leaves(reference.outputs) if isinstance(leaf, torch.Tensor)]
    mine = [leaf for _, leaf in outputs]
    theirs = [leaf for _, leaf in aligned(outputs, reference.oracle) if isinstance(leaf, torch.Tensor)]
    if [value.shape for value in mine] != [value.shape for value in theirs]:
        right, found = ([list(one.shape) for one in several] for several in (theirs, mine))
        return f"the oracle returns shapes {right}, the baseline {found}"
    for (path, value), truth in zip(outputs, theirs, strict=True):
        if not value.is_floating_point() or not value.numel():
            continue
        apart, tolerance = reference.known.distance(value, truth), tolerance_for(dtype_name(value), path)
        error = (apart.sum_square / apart.sum_square_reference) ** 0.5 if apart.sum_square_reference else apart.max_abs
        allowed = float(max(torch.finfo(value.dtype).eps, tolerance.spacing) ** 0.5)
        if error > allowed and apart.max_abs > reference.known.left_by_rounding(value, truth, tolerance):
            name, limit = output_name(path) if path else "it", f"where rounding explains less than {allowed:.3g}"
            why = f"the baseline is wrong: {name} is off the float64 oracle by {error:.3g} (relative L2), {limit}"
            if apart.max_abs < allowed:
                advice = f"say how much it may be: Tolerance(atol={2 * apart.max_abs:.1g})"
                why += f"; if this output is what rounding leaves of terms that cancel, {advice}"
            return why
    return None


def why_random(operator: Operator, reference: ExpectedOutputs, *, off_the_oracle: bool) -> str | None:
    """Return a sentence where the baseline draws random numbers, or None; it is called again where the oracle has found something or cannot judge: integers, or no oracle."""
    if reference.outputs is None:  # there was no memory to hold them
        return None
    floats = all(isinstance(leaf, torch.Tensor) and leaf.is_floating_point() for _, leaf in leaves(reference.outputs))
    if operator.draws or not (off_the_oracle or reference.oracle is None or not floats):
        return None
    call = make_call(operator, operator.baseline, "eager", trees.copy_inputs(reference.inputs))
    with SeenRandom() as seen:
        outputs = call.observe()
    declared = "declare Tolerance(random=256), which compares mean and variance over so many calls"
    advice = f"draw in inputs() and pass what was drawn, as the mask of a dropout, or {declared}"
    if off := judge(outputs, reference.outputs, None, operator.tolerance_for, reference.known).mismatch:
        return f"the baseline is random: two calls on equal inputs differ ({off}); {advice}"
    if seen.name and off_the_oracle:
        return f"the baseline draws random numbers ({seen.name}), and others in float64, where the oracle is computed; {advice}, or give an oracle="
    return None


def verify_entry(operator: Operator, entry: Entry, references: References, device: torch.device) -> Verification:
    flags = watched_flags()
    try:
        verification = _verify(operator, entry, references, device)
    finally:  # after an exception too: the next implementation is judged under the same flags
        changed = put_back_flags(flags)
    if changed:
        return Verification(entry=entry, status=Status.FAILED, reason=changed)
    return verification


def _verify(operator: Operator, entry: Entry, references: References, device: torch.device) -> Verification:
    variant, inputs = operator.implementations[entry.implementation], trees.copy_inputs(references[0].inputs)
    if compiled := is_compiled(variant, entry.mode):
        forget_compilations()
    forms = [InputForms(inputs)]
    started = time.perf_counter_ns()
    try:
        call = make_call(operator, variant, entry.mode, inputs)
        forms.append(InputForms(call.given, own=True))
        outputs = call.observe()
    except CaptureError as error:
        told = f"cannot be captured as a CUDA graph: {error}"
        return Verification(entry=entry, status=Status.SKIPPED, reason=told, capturable=False, uncapturable=str(error))
    synchronize(device)
    first_call_ns = time.perf_counter_ns() - started
    both = (  # not kept: where memory is short, the first were made for this alone
        {name: value for name, value in given.items() if name not in operator.state}
        for given in (references[0].inputs, inputs)
    )
    if paths := trees.changed_inputs(*both):
        return _mismatched(entry, trees.about_changed_inputs(paths))
    if why := _changed(forms):
        return _mismatched(entry, why)
    written = call.overwritten()
    sparing, first_calls = references[0].sparing, [outputs]
    reused, apart = _Reused(call, outputs), list[float | None]()
    del outputs  # what comes needs the memory
    verdicts = list(_verdicts(call, first_calls, references, device, reused, apart))
    written |= call.overwritten()
    if why := _changed(forms):
        return _mismatched(entry, why)
    compilation = compilations() if compiled else None
    correctness = worst(verdicts)
    if wrong := next((item.mismatch for item in verdicts if item.mismatch), None):
        unasked = f" ({references[0].oracle_missing})" if references[0].oracle_missing else ""
        return _mismatched(entry, wrong + unasked + accumulated(call.shared), correctness)
    # Inputs that no call overwrites although that is declared; a backward may, which `fwd` has not.
    names = ", ".join(repr(name) for name in variant.consumes if name in call.consumed and name not in written)
    unwritten = f"consumes names {names}, which no call writes" if names and operator.direction != "fwd" else None
    tried = device.type == "cuda"
    uncapturable = _uncapturable(call) if tried and entry.mode != "graph" else None
    return Verification(
        entry=entry,
        status=Status.VERIFIED,
        reason="; ".join(filter(None, [references[0].note or strays_note(verdicts), unwritten])) or None,
        correctness=correctness,
        first_call_ns=None if operator.draws else float(first_call_ns),
        uncapturable=uncapturable,
        capturable=uncapturable is None if tried else None,
        compilation=compilation,
        reuses_output=reused.found if entry.mode != "graph" and not sparing else None,
        repeat_error=None if None in apart else max(filter(None, apart), default=0.0),
    )


def _changed(forms: list[InputForms]) -> str | None:
    return next(filter(None, [form.changed() for form in forms]), None)


class _Reused:
    """Whether later calls return memory that the first one returned; memory of arguments, and of what is prepared of them, is the caller's."""

    def __init__(self, call: Call, outputs: Any) -> None:
        self._of_state = bool(call.operator.state)
        given = trees.named_tensors([call.shared, call.kwargs, call.given]).values()
        storages = [tensor.untyped_storage() for tensor in given if trees.has_address(tensor)]
        arguments = [(storage.data_ptr(), storage.data_ptr() + storage.nbytes()) for storage in storages]
        self._held = [extent for extent in self._extents(outputs) if not _overlap(extent, arguments)]
        self.found = False

    def look(self, outputs: Any) -> None:
        self.found |= any(_overlap(extent, self._held) for extent in self._extents(outputs))

    def _extents(self, observed: Any) -> list[tuple[int, int]]:
        """Return the addresses of the first byte of each returned tensor and behind its last."""
        returned = tensors(observed["output"] if self._of_state and observed is not None else observed)
        lying = (tensor for tensor in returned if trees.has_address(tensor) and tensor.numel())
        return [(one.data_ptr(), one.data_ptr() + trees.extent(one) * one.element_size()) for one in lying]


def _overlap(extent: tuple[int, int], others: list[tuple[int, int]]) -> bool:
    begin, end = extent
    return any(begin < other_end and other_begin < end for other_begin, other_end in others)


def _verdicts(
    call: Call, made: list[Any], both: References, device: torch.device, reused: _Reused, apart: list[float | None]
) -> Iterator[OutputVerdict]:
    """Yield verdicts on runs in the orders that expose unwritten memory, reused buffers and cached outputs.

    Where memory is short the `made` outputs are freed. `apart` takes the distance of two more calls on the first inputs to the first call; None where it is not known.
    """
    operator, (first, second) = call.operator, both
    outputs = made.pop() if first.sparing else made[0]

    def run(reference: ExpectedOutputs) -> Any:
        """Run on poisoned memory, from the reference's own state."""
        like = once if reference.outputs is None else reference.outputs
        if operator.draws and like:
            like = next(iter(like.values()))
        poison_freed(like, copies=1 if first.sparing else 3)
        if isinstance(call.run, Replay):
            for tensor in filter(memory_of_graphs(), tensors(call.run.outputs)):
                poison(tensor)
        if not (trees.refill(call.shared, reference.inputs) and call.refill(reference.inputs)):
            why = "inputs() gives other shapes or dtypes for another seed; a case is one shape"
            raise SuiteFaultError(Status.FAILED, why)
        # Read by a copy behind the call in its own stream: what another stream has yet to write is not in it.
        observed = call.observe()
        reused.look(observed)
        outputs = _copied(observed, sparing=first.sparing)
        synchronize(device)
        return outputs

    again = baseline_outputs(operator, call.shared)
    del again  # the next call might be given this memory, with the right outputs in it, and leave it unwritten
    once = _copied(outputs, sparing=first.sparing)
    copied = once is not outputs  # else it may be what later calls write to
    of_first = first.judge(once, operator.tolerance_for)
    yield of_first
    if first.sparing:
        once = outputs = None

    def judged(outputs: Any) -> OutputVerdict:
        """Judge another call on the first inputs; most give the same to the bit, and need not be judged anew."""
        alike = copied and same_outputs(outputs, once)
        apart.append(None if not copied else 0.0 if alike else furthest(outputs, once))
        return of_first if alike else first.judge(outputs, operator.tolerance_for)

    yield judged(run(first))
    if call.training and operator.direction == "bwd" and not call.training.once:
        if call.consumed:
            call.reset()
        verdict = judged(_copied(call.run(), sparing=first.sparing))
        again_why = "its second backward over one graph, which is retained, gives something else"
        declares = f"declares consumes=({SAVED!r},) if its caller goes through a graph once"
        again_why = f"{again_why}; it leaves what was saved alone, or {declares}: "
        yield replace(verdict, mismatch=again_why + verdict.mismatch) if verdict.mismatch else verdict
    with PoisonEmpty() if call.mode == "eager" else contextlib.nullcontext():
        outputs = run(first)
    yield judged(outputs)
    del outputs
    yield second.judge(run(second), operator.tolerance_for)


def _copied(outputs: Any, *, sparing: bool) -> Any:
    return outputs if sparing or not has_room(outputs) else copy_tree(outputs)


def strays_note(verdicts: list[OutputVerdict]) -> str | None:
    most = max(item.strays for item in verdicts)
    if not most:
        return None
    return f"elements beyond the tolerance to the baseline that the float64 oracle finds right: {most}"


def _uncapturable(call: Call) -> str | None:
    try:
        replay = call.capture()
        replay.before()
        replay()
        torch.cuda.synchronize()
    except CaptureError as error:
        return str(error)
    return None


def _mismatched(entry: Entry, reason: str, correctness: Correctness | None = None) -> Verification:
    return Verification(entry=entry, status=Status.MISMATCHED, reason=reason, correctness=correctness)


def _synchronize_all() -> None:
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()


def forget_compilations() -> None:
    # The compiler keeps the metrics of the newest 64 compilations only; a deep network compiled layer by layer has more.
    torch._dynamo.utils.set_compilation_metrics_limit(_MOST)
    torch._dynamo.utils.clear_compilation_metrics()


def compilations() -> Compilation:
    # On a GPU kernels are tuned when they first run, which is reported as one frame more, without a name or a line.
    frames = [frame for frame in torch._dynamo.utils.get_compilation_metrics() if not getattr(frame, "is_runtime", 0)]
    compiled = [frame for frame in frames if frame.has_guarded_code]
    again = [(frame, why) for frame in compiled if (why := _why_again(frame))]
    breaks: list[str] = []
    reasons: list[str] = []
    for frame in frames:
        file = Path(str(frame.co_filename)).name
        # The reason of a break is in the frame that broke; its line is in the name of the frame that resumes there.
        if resumed := _RESUMED.fullmatch(str(frame.co_name)):
            why = f": {reasons.pop(0)}" if reasons else ""
            breaks.append(f"{resumed['name']} breaks at {file}:{resumed['line']}{why}")
        elif not frame.has_guarded_code:
            line = frame.fail_user_frame_lineno or frame.co_firstlineno
            breaks.append(f"{frame.co_name} stays Python, {file}:{line}: {_first_line(frame.fail_reason)}")
        reasons += [_first_line(reason) for reason in frame.restart_reasons or () if "Explanation" in reason]
    # The failed guard without the folders, the line of code and the stack that the compiler adds.
    guards = [(frame.co_name, _first_line(why).partition("  #")[0].rstrip()) for frame, why in again]
    notes = (*breaks, *(f"{name} again, {_FOLDER.sub('', guard)}" for name, guard in guards))
    return Compilation(compilations=len(compiled), recompilations=len(again), graph_breaks=len(breaks), notes=notes)


def _why_again(frame: Any) -> str | None:
    """Return the guard that failed before a compilation; None for the first one of a function."""
    # Torch 2.6 counts a function's compilations behind the slash, and keeps no reasons.
    unsaid = None if str(frame.compile_id).endswith("/0") else "torch 2.6 does not say why"
    return getattr(frame, "recompile_reason", unsaid)


def _first_line(text: Any) -> str:
    return str(text or "not said").strip().partition("\n")[0]


class PoisonEmpty(TransparentMode):
    """Fills every tensor from `torch.empty` and its kin with NaN, or the largest integer, while it is active."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func in _EMPTY and isinstance(result, torch.Tensor) and result.device.type != "meta":
            poison(result)
        return result


def poison(tensor: torch.Tensor) -> None:
    """Overwrite a tensor with NaN, True, or the largest integer of its dtype; elements that share memory once."""
    with torch.no_grad():
        tensor = distinct(tensor)
        if tensor.is_floating_point() or tensor.is_complex():
            tensor.fill_(float("nan"))
        elif tensor.dtype == torch.bool:
            tensor.fill_(True)
        else:
            tensor.fill_(torch.iinfo(tensor.dtype).max)


def poison_freed(like: Any, copies: int = 3) -> None:
    """Leave freed blocks of the outputs' sizes full of 0xFF behind, which the allocator hands to the next call."""
    blocks = [
        torch.full((max(1, tensor.nbytes),), 0xFF, dtype=torch.uint8, device=tensor.device)
        for tensor in tensors(like)
        if tensor.device.type != "cpu" or tensor.nbytes <= _HANDED_BACK
        for _ in range(copies)
    ]
    del blocks
