"""The verbs that measure several commits: `ab`, `bisect` and `backfill`."""

from pairbench.cli.options import Given, Text, Texts, argument, option, verb
from pairbench.cli.say import annotate_github, configure, put, remark
from pairbench.errors import UsageError


@verb(
    "base rest catalogue implementation device tier mode rounds min_effect tf32 timeout store strict output",
    base=argument("The commit, branch or tag to compare with, of the repository that holds the suites."),
    rest=argument(
        "HEAD: the commit, branch or tag to judge; left out, the working tree, uncommitted changes included. SELECT as for run.",
        metavar="[HEAD] [SELECT]...",
    ),
    rounds=option("How many times every case is timed, each in two fresh processes, one a commit. Default: 5."),
    store=option("A store of its own, to keep both sides' records and raw samples. Default: none is kept."),
    strict=option("Fail, with 3, also where something is undecided or cannot be compared.", "--strict"),
)
def ab(given: Given, base: str, rest: Texts = None, store: Text = None, strict: bool = False) -> int | None:
    """Compare two commits, measured interleaved on one device. They alternate block by block, each in a process of its own.

    The most sensitive gate for a pull request, for drift affects both sides alike. Outputs are compared too. Both commits are
    measured by this pairbench under this Python, and nothing is put in the store of runs.

    Example: pairbench ab main suites/conv.py --device cuda:0
    """
    from pairbench.features.ab import compare_commits, keep, open_store, read_arguments
    from pairbench.model.comparison import policy_of
    from pairbench.report.comparison import render_comparison
    from pairbench.report.render import to_json
    from pairbench.report.rows import precision_remark

    policy = policy_of(given.min_effect)
    arguments = read_arguments(given.config, base, rest or [], given.implementation)
    kept = None if store is None else open_store(given.config, configure())
    found = compare_commits(given.config, arguments, given.device, policy)
    if given.output == "json":
        put(to_json(found.plain(strict=strict)), nl=False)
    else:
        put(render_comparison(found.comparison, given.output), nl=False)
    remark(*precision_remark(record for side in found.records for record in side))
    annotate_github(found.comparison)
    remark(*found.broken)
    if kept is not None:
        keep(found, kept)
        remark(f"both sides are kept: pairbench show --runs --store {kept.name}")
    return found.comparison.exit_code(strict=strict) or (2 if found.broken else 0)


@verb(
    "select good bad implementation metric catalogue device tier mode rounds most min_effect tf32 timeout store output",
    settings={"rounds": 5},
    select=argument("The one case to look at: a case key, or an operator that has one case.", metavar="SELECT"),
    good=option("The earlier commit, branch or tag, before the change."),
    bad=option("The later commit, branch or tag, after it."),
    implementation=option("The variant to look at, where there are several; or baseline.", "--implementation", "-i"),
    metric=option(
        "latency, or a count: launches, kernels, graph_launches, memcpys, memcpy_bytes, memsets, syncs, ops, "
        "allocations or peak_bytes. Counts need no statistics; auto takes one that differs between the ends first."
    ),
    mode=option("eager, compile or graph. Default: eager."),
    rounds=option("How many rounds confirm the ends; three times as many where those leave it open. Default: 5."),
    most=option("Give up after so many rounds of commits.", "--most", min=1),
)
def bisect(
    given: Given,
    select: str,
    good: str,
    bad: str = "HEAD",
    implementation: Text = None,
    metric: str = "auto",
    mode: Text = None,  # noqa: ARG001 (a setting)
    most: int = 200,
) -> int | None:
    """Find the commit that moved a series: which one, and with what probability. Each round is one of `ab` against the good end.

    Both ends are measured first. Then the commit is measured of which a round tells most, until one has 99 %, and that one against
    its parent at last; only what that shows is named. Commits that cannot be loaded, or are wrong, are skipped and named. Nothing is stored; calibrations of the store say
    how far rounds spread. Exits with 3 where there is no change between the ends, or no commit is sure enough.

    Example: pairbench bisect 'suites/norm.py::rms_norm*4096*' -i triton --good v1.2 --bad main --device cuda:0
    """
    from pairbench.analyze.compare.exact import METRICS
    from pairbench.features.ab import read_arguments
    from pairbench.features.bisect.search import bisect_commits, render_bisection
    from pairbench.model.comparison import policy_of

    policy = policy_of(given.min_effect)
    # What git knows by the name of a case is no commit here.
    arguments = read_arguments(given.config, good, [bad, select], (implementation,) if implementation else ())
    if arguments.head is None:
        nothing = f"--bad {bad!r} is no commit, branch or tag of {arguments.repository}"
        raise UsageError(f"{nothing}; `git log` lists what there is")
    short = {name.removesuffix("_per_call"): name for name in METRICS}
    metric = short.get(metric, metric)
    if metric not in ("auto", "latency", *METRICS):
        raise UsageError(f"--metric {metric!r} is unknown, expected auto, latency or one of {', '.join(short)}")
    found = bisect_commits(given.config, arguments, given.device, implementation, metric, most, policy)
    put(render_bisection(found, given.output), nl=False)
    return found.exit_code


@verb(
    "range_ select every tags steps catalogue implementation device tier mode rounds tf32 timeout store output",
    range_=argument("Commits as `git log` takes them: v1.0..main, or main for all of its history.", metavar="RANGE"),
    every=option("Take every Nth commit, the newest among them.", min=1, metavar="N"),
    tags=option("Take the commits that have a tag.", "--tags"),
    steps=option(
        "Take N commits at most, where they tell most: both ends, those that change an implementation, then the middle between "
        "neighbours that differ.",
        min=1,
        metavar="N",
    ),
)
def backfill(
    given: Given, range_: str, every: int | None = None, tags: bool = False, steps: int | None = None
) -> int | None:
    """Measure commits of the past, and store each as a run of that commit. Takes all commits of the range, oldest first; a merge counts as one.

    Each commit has a folder of its own; your checkout is left alone. All are measured by this pairbench, under this Python, now. What the
    store has already of a commit, on this device model and in this environment, is left out, so that the same command goes on where
    it was interrupted. Commits that cannot be loaded are skipped and named.

    Example: pairbench backfill v1.0..main suites/norm.py --steps 20 --device cuda:0
    """
    from pairbench.features.ab import read_arguments
    from pairbench.features.backfill import backfill, render_backfilled

    if (every is not None) + tags + (steps is not None) > 1:
        raise UsageError("--every, --tags and --steps each say which commits to take; name one of them")
    # With a commit named as the other side, no SELECT is taken for one.
    arguments = read_arguments(given.config, range_, ["HEAD", *given.select], given.implementation)
    done = backfill(given.config, arguments, given.device, nth=every, tags=tags, steps=steps)
    put(render_backfilled(done.filled.values(), done.skipped.values(), given.output), nl=False)
    if done.interrupted:
        left = len(done.commits) - len(done.filled) - len(done.skipped)
        remark(f"interrupted with {left} commits to go; the same command goes on from here")
    if done.not_in_store:
        go_on = "`pairbench store push` sends what is kept, the same command goes on"
        remark(f"the store took no more: {done.not_in_store}; {go_on}")
    return done.exit_code
