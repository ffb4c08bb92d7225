"""The verbs that read a store: `show`, `compare`, `trend`, `plot`, `accept`, `triage`, `results` and `dashboard`."""

from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from urllib.parse import urlsplit

from pairbench.cli.options import File, Given, Text, Texts, argument, option, verb
from pairbench.cli.say import put, put_rows, remark, report_problems, write
from pairbench.errors import SelectionError, StoreError, UsageError
from pairbench.execute.garbage import collector_at_rest
from pairbench.model.case import TIERS
from pairbench.workflow.setup import store_of, stored_select

_SERIES = "One implementation of a case in a mode, like suites/conv.py::conv1d[taps=4]-triton-eager; or a glob"
_SIDE = (
    "auto, latest, latest~N (the Nth before it), previous, last:N, a run id or its beginning, a commit, branch or tag, a date or dates (2026-11-01..2026-11-07), "
    "a parquet file, or another store."
)
Style = StrEnum("Style", {"SCREEN": "screen", "PAPER": "paper"})  # what a chart is drawn for


@verb(
    "rest names list_runs stored_implementation stored_device stored_tier stored_mode store output",
    rest=argument(
        "RUN: a run, the beginning of its id, or latest, which it is where left out; `--runs` lists them. SELECT as for run.",
        metavar="[RUN] [SELECT]...",
    ),
    list_runs=option("List the runs in the store instead.", "--runs"),
)
def show(given: Given, rest: Texts = None, list_runs: bool = False) -> None:
    """Show what a run measured.

    Example: pairbench show latest 'depthwise*' -i triton --format markdown
    """
    from pairbench.report.rows import render
    from pairbench.store.reader import read_run, runs

    location = store_of(given.config)
    if list_runs:
        found = runs(location)
        put_rows("runs", [vars(run) for run in found.value], given.output)
        remark(*found.problems)
        return
    first, *select = rest or ["latest"]
    no_run = ""
    try:
        reading = read_run(location, first)
    except StoreError as error:
        reading, select, no_run = read_run(location, "latest"), [first, *select], f", and {error}"
    wanted = replace(given.wanted, select=(*given.wanted.select, *stored_select(given.config, select)))
    records = wanted.records(reading.value, beside="baseline")
    if not wanted.records(records):  # baselines alone are no answer
        raise SelectionError(f"{wanted} selects nothing of run {reading.value[0].run_id}{no_run}")
    put(render(records, given.output), nl=False)
    remark(*reading.problems)


@verb(
    "reference current names stored_implementation stored_device stored_tier stored_mode min_effect strict quiet_only store output",
    reference=argument(
        f"What to compare with. auto: the newest comparable runs of the default branch, up to 5 for each series; outside a checkout, every earlier one. Or {_SIDE}",
        metavar="[REFERENCE]",
    ),
    current=argument(
        "What to judge, named in the same way. auto: the newest run of each device model within a day, with the runs that confirm them.",
        metavar="[CURRENT]",
    ),
    strict=option(
        "Exit with 3 where something is undecided, missing, incomparable or unreadable, or nothing is there to compare with.",
        "--strict",
    ),
    quiet_only=option(
        "Judge times on a CPU only where `pairbench calibrate` has found it quiet, as `pytest --pairbench-gate` does; "
        "counts and correctness on any.",
        "--quiet-only",
    ),
)
def compare(
    given: Given, reference: str = "auto", current: str = "auto", strict: bool = False, quiet_only: bool = False
) -> int | None:
    """Compare a run with earlier ones, series by series. Each verdict names the likely cause.

    Exit code: 1 for a regression or a failure; 4 where the newest run cannot be read or could load no suite; 3 as --strict says; else 0.

    Example: pairbench compare main latest --strict
    """
    from pairbench.model.comparison import policy_of
    from pairbench.report.comparison import render_comparison
    from pairbench.workflow.comparer import Comparer

    with collector_at_rest():
        comparer = Comparer.open(given.config, policy=policy_of(given.min_effect), quiet_only=quiet_only)
        compared = comparer.compare(reference, current, wanted=given.wanted)
    put(render_comparison(compared.comparison, given.output), nl=False)
    report_problems(compared)
    return compared.exit_code(strict=strict)


@verb(
    "series stored_implementation stored_device stored_tier stored_mode last timer_ strict store picture output",
    series=argument(f"{_SERIES}, or a part of the name, that fits one only.", metavar="SERIES"),
    picture=option("Draw it into this .svg or .png file, too.", "--output", "-o", metavar="<str>"),
    last=option("Take the newest N runs. Default: all.", min=1),
    timer_=option("Take values of this timer. Default: the newest run's.", "--timer"),
    strict=option("Exit with 3 where the newest run is undecided.", "--strict"),
)
def trend(
    given: Given, series: str, picture: File = None, last: int | None = None, timer_: Text = None, strict: bool = False
) -> int | None:
    """Show changepoints of a series, the commits around them and the latest verdict.

    Example: pairbench trend 'suites/norm.py::rms_norm*4096*-triton-eager' --output trend.svg
    """
    from pairbench.model.comparison import GateOutcome
    from pairbench.report.trend import render_trend
    from pairbench.workflow.lookup import read_trend

    _check_picture(picture, (".svg", ".png"))
    if picture is not None and not picture.parent.is_dir():
        nowhere = f"there is no folder {str(picture.parent)!r}"
        raise UsageError(f"--output {str(picture)!r}: {nowhere}; make it, or name another")
    with collector_at_rest():
        reading = read_trend(store_of(given.config), series, timer=timer_, last=last, wanted=given.wanted)
    found = reading.value
    put(render_trend(found, given.output), nl=False)
    remark(*reading.problems)
    if picture is not None:
        from pairbench.report.figures import to_bytes, trend_figure

        write(picture, to_bytes(trend_figure(found), picture.suffix.lower()))
        remark(f"drew {picture}")
    outcome = found.newest.outcome if found.newest else GateOutcome.UNDECIDED
    if outcome in (GateOutcome.REGRESSION, GateOutcome.FAILED):
        return 1
    return 3 if strict and outcome in (GateOutcome.UNDECIDED, GateOutcome.NEW) else 0


def _check_picture(file: Path | None, suffixes: tuple[str, ...]) -> None:
    if file is not None and file.suffix.lower() not in suffixes:
        expected = f"{', '.join(suffixes[:-1])} or {suffixes[-1]}"
        raise UsageError(f"--output {str(file)!r} ends in {file.suffix or 'nothing'!r}, expected {expected}")


@verb(
    "stored_select x y log target style run_id stored_implementation stored_device stored_tier stored_mode store output",
    x=option("Axis of the cases. Default: the only one that varies.", "--x", metavar="AXIS"),
    y=option(
        "device_p50_us, call_p50_us, host_p50_us, speedup, gbps or tflops. Default: the latency that is the result, the "
        "device's on a GPU and the call's on a CPU.",
        "--y",
        metavar="QUANTITY",
    ),
    log=option("Scale of both axes. Default: by how far values spread.", "--log/--linear"),
    target=option("Draw it into this .png, .svg, .pdf or .html file, too.", "--output", "-o", metavar="FILE"),
    style=option(
        "screen, or paper: a .pdf or .svg one column (3.3 in) wide, with letters of 8 pt.", "--style", metavar="STYLE"
    ),
    run_id=option(
        "Take this run: its id, the beginning of it, or latest. Default: of each series the newest run that measured it.",
        "--run",
        metavar="RUN",
    ),
)
def plot(
    given: Given,
    x: Text = None,
    y: Text = None,
    log: bool | None = None,
    target: File = None,
    style: Style = Style.SCREEN,
    run_id: Text = None,
) -> None:
    """Draw stored results along an axis of the cases: a line an implementation, with 95 % intervals, and where each crosses the baseline.

    Prints the same values as a table. Cases that differ in other axes have panels of their own. The title names what all lines
    share: device model, dtype and mode.

    Example: pairbench plot silu --x n --y speedup --output silu.svg
    """
    from pairbench.report.axis_chart import SUFFIXES, axis_chart, chart_rows, crossover_sentences
    from pairbench.report.render import to_json
    from pairbench.workflow.lookup import stored_points

    paper = style == Style.PAPER
    if paper and target is None:
        raise UsageError("--style paper draws a file and no --output names one; add --output FILE.pdf")
    _check_picture(target, (".svg", ".pdf") if paper else SUFFIXES)
    reading = stored_points(given.config, given.wanted, run=run_id)
    chart = axis_chart(reading.value, x, y, log=log)
    rows, crossovers = chart_rows(chart), crossover_sentences(chart)
    if given.output == "json":
        put(to_json({"x": chart.x, "y": chart.quantity, "chart": chart, "crossovers": crossovers}), nl=False)
    else:
        put_rows(f"{chart.title}: {chart.y}", rows, given.output)
        for sentence in crossovers:
            put(sentence)
    remark(*reading.problems)
    if target is not None:
        from pairbench.report.figures import axis_bytes

        write(target, axis_bytes(chart, target.suffix.lower(), paper=paper))
        remark(f"drew {target}")


@verb(
    "series reason run_id stored_implementation stored_device stored_tier stored_mode store output",
    series=argument(f"{_SERIES}.", metavar="SERIES"),
    reason=option("Why this level is right; shown wherever it is used."),
    run_id=option(
        "Whose level: a run, the beginning of its id, or latest. Default: the newest run that measured the series.",
        "--run",
        metavar="RUN",
    ),
)
def accept(given: Given, series: str, reason: str, run_id: Text = None) -> None:
    """Accept the present level of a series on purpose. Latencies up to that level are no regression; latencies above it are.

    Stored as a small file in the store's folder `accepted`, to be reviewed and committed like code.

    Example: pairbench accept 'suites/norm.py::rms_norm*-fused-eager' --reason 'exact softmax, see #12'
    """
    from pairbench.features.levels import accept_level

    stored, problems = accept_level(given.config, series, reason=reason, run=run_id, wanted=given.wanted)
    rows = []
    for one, path in stored:
        p50_us = None if one.p50_ns is None else round(one.p50_ns / 1e3, 3)
        row = {"series": one.series.name, "device": one.series.device_name, "p50_us": p50_us}
        rows.append({**row, "run": one.run_id, "file": path})
    put_rows("accepted", rows, given.output)
    remark(*problems)


@verb(
    "ids state url until note ended store output",
    ids=argument("Events: ids, or addresses on the site.", metavar="[ID]..."),
    state=option("new, investigating, filed, expected or not-ours."),
    url=option("The issue, with --state filed.", metavar="URL"),
    until=option("The last day, with --state expected.", metavar="DATE"),
    note=option("What others have to know of it; shown beside the state."),
    ended=option("List events that are no longer open, too.", "--all"),
)
def triage(
    given: Given,
    ids: Texts = None,
    state: Text = None,
    url: Text = None,
    until: Text = None,
    note: str = "",
    ended: bool = False,
) -> None:
    """Set the state of events, or list the open ones with ids and states. New ones lead on the site, others fold below them.

    Stored as small files in the store's folder `triage`, like those of `accept`; the last one of an event counts.

    Example: pairbench triage 3f0c2a9be417 --state filed --url https://example.org/team/operators/issues/12
    """
    from pairbench.site.event_pages import set_states, stored_events, table_rows

    if not ids and (state or url or until or note):
        raise UsageError("no ID: say which events; `pairbench triage` lists them")
    with collector_at_rest():
        if ids:
            events, problems = set_states(given.config, ids, state=state, url=url, until=until, note=note)
        else:
            events, problems = stored_events(given.config, ended=ended)
    put_rows("events", table_rows(events), given.output)
    remark(*problems)


@verb(
    "select catalogue tiers store output target pages strict",
    tiers=option("smoke, real or headline; repeatable. Default: real and headline.", "--tier"),
    target=option("Where to. Default: standard output.", "--output", "-o", metavar="FILE"),
    pages=option(
        "Write a Markdown page for each operator into this folder, too, and leave the summary to the main page.",
        "--pages",
        metavar="FOLDER",
    ),
    strict=option("Exit with 3 where a selected operator was not measured at all.", "--strict"),
)
def results(
    given: Given, tiers: Texts = None, target: File = None, pages: File = None, strict: bool = False
) -> int | None:
    """Write a page of results for every pair. With speedups, losses, and published figures beside ours.

    For each operator and device model: baseline and best variant with the speedup and its interval, launches, memory, part
    of the roof, the modes beside one another, published figures (`claims=` of the operator) beside ours, where variants
    lose, and what was refused or skipped, with reasons. Of each series the newest record counts.

    Exit codes: 2 where there is no store or a suite cannot be loaded; 3 under --strict where something was not measured.

    Example: pairbench results --store results/reference --format markdown --output suites/RESULTS.md --pages build/results
    """
    from pairbench.features.results.page import operator_pages, results_page, stored_results

    for tier in tiers or ():
        if tier not in TIERS[1:]:  # those that are timed, and so have results
            raise UsageError(f"--tier {tier!r} is unknown, expected one of {', '.join(TIERS[1:])}")
    taken = tuple(tiers or ("real", "headline"))
    found = stored_results(given.config, given.select, taken)
    options = [*(f"--tier {name}" for name in tiers or ()), *([f"--store {given.store}"] if given.store else [])]
    options += ["--format markdown", *(["--pages FOLDER"] if pages else [])]
    command, summary = " ".join(["pairbench results", *given.select, *options]), pages is not None
    page = results_page(found, given.output, command=command, tiers=taken, summary=summary)
    if pages:
        for name, text in operator_pages(found.measured, command=command).items():
            write(pages / f"{name}.md", text, make_folder=True, option="--pages")
    if target is None:
        put(page, nl=False)
    else:
        write(target, page)
    remark(*found.problems, *found.broken)
    if found.broken:
        return 2
    return 3 if strict and (found.unmeasured or not found.measured) else 0


@verb(
    "store folder last repository address publish serve live port",
    folder=option(
        "Where the site goes: a new folder, or that of an earlier build. Default: dashboards/site.",
        "--output",
        "-o",
        metavar="FOLDER",
    ),
    last=option("Take the newest N runs. Default: all.", min=1),
    repository=option("The repository on the web, for links into it. Default: the checkout's origin.", metavar="URL"),
    address=option("Where the site will be on the web, for the links in its feed.", metavar="URL"),
    publish=option(
        "Then copy it there, such as s3://bucket/pages: data first, the first page last. What else is there stays.",
        metavar="URL|FOLDER",
    ),
    serve=option("Then show it to browsers on this machine, until Ctrl-C.", "--serve"),
    live=option("Then show it with runs under way, built again after each case, until Ctrl-C.", "--live"),
    port=option("Of --serve and --live; 0 takes a free one.", min=0, max=65535),
)
def dashboard(
    given: Given,
    folder: File = None,
    last: int | None = None,
    repository: Text = None,
    address: Text = None,
    publish: Text = None,
    serve: bool = False,
    live: bool = False,
    port: int = 8000,
) -> None:
    """Write a site of the store, which opens from disk. Overview, operators, regressions and runs; it needs no network.

    Prints the path of its first page. Another build into the same folder writes only what changed. Exit code 4 where the store
    cannot be listed, or no run of it can be read, and then the site stays as it is; an empty store makes a site that says what to do.

    Example: pairbench dashboard --output site --serve
    """
    from pairbench.site.build import SiteOptions, build_site, upload
    from pairbench.site.serve import serve as serve_folder
    from pairbench.site.serve import serve_live
    from pairbench.store.location import fingerprint

    for name, url in (("--repository", repository), ("--address", address)):
        if url is not None and (urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).netloc):
            raise UsageError(f"{name} {url!r} is no address, expected one like https://example.org/team/operators")
    place = folder if folder is not None else given.config.root / "dashboards" / "site"
    named = ("--store", given.config.shown_store) if given.store is not None else ()
    options = SiteOptions(folder=place, repository=repository, address=address, last=last, store_options=named)
    seen = fingerprint(store_of(given.config)) if live else None  # what is written from here on is built again
    with collector_at_rest():
        site = build_site(given.config, options)
    remark(*site.problems)
    remark(f"{site.files:,} files, {len(site.written):,} of them new or changed, {len(site.removed):,} removed")
    put(place / "index.html")
    if publish is not None:
        sent = upload(place, publish)
        files = f"{sent.files:,} files, {len(sent.written):,} of them new or changed, {len(sent.removed):,} removed"
        remark(f"published to {sent.name}: {files}")
    if live:
        serve_live(given.config, options, port, remark, seen)
    elif serve:
        serve_folder(place, port, remark)
