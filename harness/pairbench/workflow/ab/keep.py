"""Both sides of a comparison go into a store of its own, if one is named: the records and raw samples that its verdicts rest on."""

from pairbench.analyze.records import to_samples
from pairbench.config import Config
from pairbench.errors import UsageError
from pairbench.store.location import StoreLocation
from pairbench.store.reading import stored_files
from pairbench.store.writer import write_run
from pairbench.workflow.ab.measure import SIDES, SideBySide


def open_store(config: Config, history: Config) -> StoreLocation:
    """Return a store for sides of comparisons, which can be written and is no history.

    Args:
        config: The settings with that store.
        history: The settings without it, whose store is the history.

    Raises:
        UsageError: it is the history's, or holds runs of one.
        StoreError: it cannot be written.
        StoreFailedError: it is elsewhere, and takes nothing or cannot be listed.
    """
    location = StoreLocation.of(config.store)
    others = [file.run_id for file in stored_files(location, "records").files if not _is_side(file.run_id)]
    if others or location.root == StoreLocation.of(history.store).root:
        what = f"holds run {others[0]}" if others else "is where runs go"
        raise UsageError(
            f"--store {location.name!r} {what}: in a history the two sides of ab would pass for runs; name a store of their own"
        )
    location.make_folder(f"{location.root}/records")
    location.probe(f"{location.root}/records")
    return location


def _is_side(run_id: str) -> bool:
    return any(f"-{side}" in run_id for side in SIDES)


def keep(found: SideBySide, location: StoreLocation) -> None:
    """Write both sides, each as a run, and as another one what was measured again.

    Raises:
        StoreError: its folders cannot be made.
        StoreFailedError: there is no space or permission.
    """
    for records, parts in zip(found.records, found.parts, strict=True):
        samples = [row for run, outcomes in parts for row in to_samples(run, found.environment, outcomes)]
        for run_id in dict.fromkeys(record.run_id for record in records):
            rows = [record for record in records if record.run_id == run_id]
            write_run(
                location,
                run_id=run_id,
                device_slug=found.environment.device.slug,
                month=rows[0].started_at[:7],
                records=rows,
                samples=[sample for sample in samples if sample.run_id == run_id],
            )
