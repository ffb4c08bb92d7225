"""Every command that reads a store, on stores with something wrong: a sentence and an exit code, and all that is sound is shown."""

import json
import shutil
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from tests.builders import CASES, SUITE, run_id_of
from tests.faults.damaged import GOES, LAST, RUNS, Damage, make_store
from tests.faults.forked import each_forked
from tests.faults.seen import Seen
from tests.in_process import Said, call_main

SERIES = f"{SUITE}::{CASES[0]}-fused-eager"
COMMANDS: dict[str, tuple[str, ...]] = {
    "show": ("show",),
    "show, of the run": ("show", LAST),
    "show, as JSON": ("show", "--format", "json"),
    "show --runs": ("show", "--runs", "--format", "json"),
    "compare": ("compare",),
    "compare, as JSON": ("compare", "--format", "json"),
    "compare, as Markdown": ("compare", run_id_of(0), LAST, "--format", "markdown"),
    "trend": ("trend", SERIES),
    "trend, as JSON": ("trend", SERIES, "--format", "json"),
    "trend, as a figure": ("trend", SERIES, "--output", "trend.svg"),
    "accept": ("accept", SERIES, "--reason", "on purpose"),
    "triage": ("triage",),
    "dashboard": ("dashboard", "--output", "site"),
    "export for pytest-benchmark": ("export", "pytest-benchmark", "latest"),
    "export as CSV": ("export", "csv", f"last:{RUNS}"),
    "import": ("import", "pytest-benchmark", "saved.json"),
}
_JSON = ("show, as JSON", "show --runs", "compare, as JSON", "trend, as JSON", "export for pytest-benchmark")
_SAVED = Path(__file__).parents[1] / "features" / "exchange" / "data" / "pytest-benchmark-5.3.1.json"
LONG_S = 60.0
SOUND = {run_id_of(number) for number in range(RUNS - 1)}


def read_damaged(damages: Mapping[str, Damage], commands: Iterable[str] = COMMANDS, *, at_once: int = 1) -> Seen:
    """Damage a store in each of some ways, and run commands on it, in a process of its own."""
    seen, commands = Seen(), list(commands)
    with tempfile.TemporaryDirectory() as folder:
        sound = Path(folder) / "sound"
        make_store(sound)
        # Here once, so that the forks find everything imported.
        first = _commands(Path(folder), "nothing", lambda _: None, commands)
        assert not first.wrong, first.wrong

        def work(name: str) -> Seen:
            return _commands(Path(folder), name, damages[name], commands)

        for name, one, wrong in each_forked(work, damages, at_once=at_once, limit_s=LONG_S * len(commands)):
            seen.counts["stores"] += 1
            if wrong:
                seen.wrong.append(f"{name!r}: {wrong.strip()}")
            if one:
                seen.add(one)
    return seen


def _commands(folder: Path, name: str, damage: Damage, commands: Iterable[str]) -> Seen:
    seen = Seen()
    here = Path(tempfile.mkdtemp(dir=folder))
    for command in commands:
        store = here / "results"
        shutil.copytree(folder / "sound", store)
        shutil.copy(_SAVED, here / "saved.json")
        damage(store)
        began = time.monotonic()
        said = call_main(here, *COMMANDS[command])
        seen.counts["commands"] += 1
        seen.counts[f"exit code {said.code}"] += 1
        seen.wrong += [f"{command} on {name!r}: {told}" for told in _wrong(here, name, command, said)]
        if time.monotonic() - began > LONG_S:
            seen.wrong.append(f"{command} on {name!r}: took {time.monotonic() - began:.0f} s")
        shutil.rmtree(here)
        here.mkdir()
    return seen


def _wrong(here: Path, name: str, command: str, said: Said) -> Iterable[str]:
    if "Traceback" in said.err or "this is a bug" in said.err:
        yield said.err.strip().splitlines()[-2]
        return
    if said.code not in (0, 1, 2, 3, 4):
        yield f"exit code {said.code}"
    if said.code in (2, 4) and not said.err.strip():
        yield f"exit code {said.code} without a word"
    if command in _JSON and said.code in (0, 1, 3):
        try:
            json.loads(said.out)
        except ValueError as error:
            yield f"its JSON is none: {error}"
    if name in GOES:
        return
    if command == "show --runs":
        there = {run["run_id"] for run in json.loads(said.out)["runs"]} if said.code == 0 else set()
        if missing := SOUND - there:
            yield f"sound runs are not listed: {sorted(missing)}, {said.err.strip()[:200]}"
    if command == "dashboard":
        index = json.loads((here / "site" / "index.json").read_text()) if said.code == 0 else {"runs": []}
        if missing := SOUND - {run["run_id"] for run in index["runs"]}:
            yield f"sound runs are not on the site: {sorted(missing)}, {said.err.strip()[:200]}"
    if command == "export as CSV" and said.code == 0 and any(run not in said.out for run in sorted(SOUND)[1:]):
        yield "sound runs are not exported"
