"""The command line: verbs in the order of use. Each parses, calls, prints, and returns the contract's exit code.

0 fine; 1 a mismatch, a failure or a regression; 2 usage; 3 undecided under --strict; 4 the harness failed. 130, as
shells have it, after an interruption.
"""

import inspect
import io
import itertools
import json
import sys
import traceback
from typing import Annotated

import typer

from pairbench import __version__
from pairbench.cli.commits import ab, backfill, bisect
from pairbench.cli.exchange import export, import_, recipe
from pairbench.cli.groups import fleet_verbs, store_verbs
from pairbench.cli.measure import breakdown, calibrate, capture, diverge, doctor, judge, list_, run, try_, verify
from pairbench.cli.say import printed, put, remark, say
from pairbench.cli.stored import accept, compare, dashboard, plot, results, show, trend, triage
from pairbench.errors import InterruptedRunError, PairbenchError
from pairbench.workflow.setup import ends_on_signals

app = typer.Typer(
    name="pairbench",
    help="Optimised PyTorch operators beside the plain ones they replace: verified, timed side by side, tracked over commits.",
    epilog="Example: pairbench run suites/depthwise.py --device cuda:0",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # its boxes take longer to import than everything else that a command's help needs
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(value: bool) -> None:
    if value:
        put(f"pairbench {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Hold the options that come before a verb."""


for verb in (  # in the order of use
    *(doctor, list_, verify, try_, run, judge, show, compare, ab, bisect, trend, backfill, plot, accept, triage),
    *(dashboard, results, calibrate, capture, breakdown, diverge, import_, export, recipe),
):
    # \b keeps a paragraph as it is: an example is copied, and must not be wrapped.
    text = (inspect.getdoc(verb) or "").replace("Example: ", "\b\nExample: ")
    app.command(verb.__name__.rstrip("_"), help=text)(verb)
app.add_typer(store_verbs, name="store")
app.add_typer(fleet_verbs, name="fleet")


def main() -> None:
    """Run the command line, with one sentence and an exit code for every error that is foreseen."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a name may hold what the terminal's encoding does not
    printed.clear()
    try:
        with ends_on_signals():
            app(standalone_mode=True)
    except PairbenchError as error:
        remark(error)
        if not printed and _wants_json(sys.argv[1:]):  # a program reads stdout, and nothing is no JSON
            put(json.dumps({"error": str(error), "exit_code": error.exit_code}, ensure_ascii=False))
        sys.exit(error.exit_code)
    except InterruptedRunError:
        sys.exit(130)
    except SystemExit as end:
        # Typer has printed its own error, of an unknown option or verb, and exits while it handles it.
        message = getattr(end.__context__, "format_message", None)
        if message is not None and not printed and _wants_json(sys.argv[1:]):
            put(json.dumps({"error": message(), "exit_code": end.code}, ensure_ascii=False))
        raise
    except BrokenPipeError:  # `pairbench show | head`
        sys.stderr.close()
        sys.exit(0)
    except Exception:  # noqa: BLE001 (whatever was not foreseen)
        say(traceback.format_exc(), nl=False)
        remark("this is a bug in pairbench; please report it with the lines above")
        sys.exit(PairbenchError.exit_code)


def _wants_json(words: list[str]) -> bool:
    """Return whether a command line asks for JSON; a wrong one may not have been parsed to its end."""
    pairs = {("--format", "json"), ("-f", "json")} & {*itertools.pairwise(words)}
    return bool(pairs or {"--format=json", "-fjson"} & {*words})
