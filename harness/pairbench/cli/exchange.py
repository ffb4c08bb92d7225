"""The verbs that carry files in and out: `import`, `export` and `recipe`."""

from collections import Counter, defaultdict
from enum import StrEnum
from pathlib import Path
from typing import Any

from pairbench.cli.options import File, Given, Text, argument, option, verb
from pairbench.cli.say import put, put_rows, remark, write
from pairbench.errors import UsageError

# The forms in which a run can be exported, the tools whose results can be imported, and the times that an imported run can have.
Form = StrEnum("Form", {"PYTEST_BENCHMARK": "pytest-benchmark", "CSV": "csv", "FLASHINFER_TRACE": "flashinfer-trace"})
Tool = StrEnum("Tool", {"PYTEST_BENCHMARK": "pytest-benchmark", "ASV": "asv"})
When = StrEnum("When", {"MEASURED": "measured", "COMMITTED": "committed"})


@verb(
    "form run target store",
    form=argument("pytest-benchmark, csv or flashinfer-trace.", metavar="FORM"),
    run=argument(
        "Which run, named as in `pairbench compare`: latest, a run id or its beginning, a commit, branch or tag, "
        "a parquet file, or another store. csv and flashinfer-trace take several, too: last:N, or dates like 2026-11-01..2026-11-07.",
        metavar="[RUN]",
    ),
    target=option("Where to. Default: standard output.", "--output", "-o", metavar="FILE"),
)
def export(given: Given, form: Form | None = None, run: str = "latest", target: File = None) -> None:
    """Export a run for pytest-benchmark, as CSV, or as traces. `pytest-benchmark compare` reads the first; CSV has every column.

    Traces are a line for each solution and workload of FlashInfer-Trace's definitions, as data sets of that form keep in `traces`.

    The statistics of a pytest-benchmark file are of the raw samples where the store has them, else of the medians of
    rounds; `extra_info.stats_of` says which. On a GPU they are of the latency on the device, wherever that could be taken;
    `extra_info.samples_of` says so. `pairbench import` restores such a file to the records that it was made of.

    Exit code: 2 where there is no such run, or the file cannot be written; else 0.

    Example: pairbench export pytest-benchmark latest --output run.json && pytest-benchmark compare run.json
    """
    from pairbench.features.exchange.pytest_benchmark import benchmarks_of, csv_of, pick_runs
    from pairbench.features.exchange.traces import traces_of

    if form is None:
        example = "`pairbench export csv latest --output run.csv`"
        raise UsageError(f"export takes a form: {' or '.join(Form)}, as in {example}")
    picked, records, problems = pick_runs(given.config, run)
    remark(*problems)
    if form is Form.FLASHINFER_TRACE:
        text, unmeasured = traces_of(records, given.config.root)
    else:
        text, unmeasured = (csv_of(records), ()) if form is Form.CSV else benchmarks_of(picked, records)
    if unmeasured:
        remark(f"{len(unmeasured)} without a result that {form} has a place for: {', '.join(unmeasured)}")
    if target is None:
        put(text, nl=False)
    else:
        write(Path(target), text)


@verb(
    "tool paths implementation when device_name store output",
    tool=argument("pytest-benchmark or asv.", metavar="TOOL"),
    paths=argument(
        "For pytest-benchmark, JSON files that it saved. For asv, its results_dir. Each file becomes one run.",
        metavar="PATH...",
    ),
    implementation=option(
        "The parameter whose values are implementations of one operator, and its value for the plain one "
        "(default: baseline). Without it every benchmark is a baseline of its own, and there are no speedups.",
        metavar="AXIS[:BASELINE]",
    ),
    when=option(
        "What a run's time is, by which runs are ordered: when it was measured (default), or when its commit was "
        "made. A history that asv measured in another order than its commits were made needs one of them."
    ),
    device_name=option("Model of the GPU, which these files do not record. Default: the CPU that they name."),
)
def import_(
    given: Given,
    tool: Tool,
    paths: list[str],
    implementation: Text = None,
    when: When | None = None,
    device_name: Text = None,
) -> int | None:
    """Import results of pytest-benchmark or asv. Each file becomes a run that trend, compare and dashboard show.

    A run that is in the store already is left as it is. P95 is kept where the file has samples of single calls; what is
    neither a latency nor a peak of memory is left out and named. Files in which pairbench's own pytest plugin or
    `pairbench export` put its columns are restored.

    Exit code: 1 where something could not be imported, while all the rest was; 2 for an --implementation that pairs
    nothing, or where --when is needed; else 0.

    Example: pairbench import pytest-benchmark .benchmarks/*/*.json --implementation backend:torch
    """
    from pairbench.features.exchange.importing import NOT_IMPORTED, import_runs

    rows = import_runs(
        given.config.store, tool, paths, implementation=implementation, when=when, device_name=device_name
    )
    left_out, reasons = Counter[str](), defaultdict[str, list[str]](list)
    shown: list[dict[str, Any]] = []
    for row in rows:
        values = Counter[str](row.get("left_out", {}))
        left_out.update(values)
        # A table counts what was left out; names and reasons are on stderr.
        counted = {**row, "commit": (row.get("commit") or "")[:10], "left_out": values.total()}
        shown.append({name: value for name, value in counted.items() if name != "reason"})
        if row["outcome"] == NOT_IMPORTED:
            reasons[row["reason"].replace(row["source"], "")].append(row["reason"])
    put_rows("imports", rows if given.output == "json" else shown, given.output)
    # What is wrong with a whole history is told once.
    remark(*(f"{first}{f' (and so are {len(more)} more files)' if more else ''}" for first, *more in reasons.values()))
    if left_out:
        names = ", ".join(f"{name} ({count})" for name, count in sorted(left_out.items()))
        remark(f"{left_out.total()} values left out, neither a latency nor a peak of memory, or there twice: {names}")
    return int(bool(reasons))


@verb(
    "name file force output",
    name=argument("The recipe to print. Default: list them.", metavar="[NAME]"),
    file=option("Write it there instead; the list says where it belongs.", "--output", "-o", metavar="FILE"),
    force=option("Replace FILE where it exists.", "--force"),
)
def recipe(given: Given, name: Text = None, file: File = None, force: bool = False) -> None:
    """Print a ready-made configuration for CI or a cluster, or list them. What a project must change is at the top of the file.

    Example: pairbench recipe github-cpu --output .github/workflows/pairbench-cpu.yml
    """
    from pairbench.integrations import recipes

    if name is not None:
        text = recipes.recipe(name).text
        if file is None:
            put(text, nl=False)
            return
        if file.exists() and not force:
            raise UsageError(f"{file} is there already and may hold changes of yours; --force replaces it")
        write(file, text, make_folder=True)
        put(file)
        return
    known = recipes.recipes()
    if file is not None:
        names = ", ".join(one.name for one in known)
        raise UsageError(f"--output {str(file)!r} needs the name of a recipe, one of {names}")
    put_rows("recipes", [{"recipe": one.name, "for": one.purpose, "file": one.place} for one in known], given.output)
