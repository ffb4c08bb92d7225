"""The hashes of the catalogue: `python -m tests.catalogue.hashes` writes those that the suites have now to hashes.json."""

import json
from pathlib import Path
from typing import Any

from pairbench.execute.worker.describe.operators import describe
from pairbench.suite.modules import find_suites, load_suite

ROOT = Path(__file__).parents[2]
PINNED = Path(__file__).with_name("hashes.json")

Hashes = dict[str, dict[str, dict[str, Any]]]


def hashes() -> Hashes:
    """Return by suite and operator the hash of the definition and those of the implementations."""
    return {
        path.relative_to(ROOT).as_posix(): {
            operator.name: {
                "definition": (described := describe("", path, operator)).definition_hash,
                "implementations": {item.name: item.hash for item in described.implementations},
            }
            for operator in load_suite(path).values()
        }
        for path in find_suites((ROOT / "suites",))
    }


if __name__ == "__main__":
    PINNED.write_text(json.dumps(hashes(), indent=1) + "\n", encoding="utf-8")
