"""The only place that knows parquet: run files written once, readable at any moment, merged by copying.

    <store>/records/device=<slug>/month=YYYY-MM/<run_id>.parquet     one row a record
    <store>/records/device=<slug>/month=YYYY-MM/<newest run_id>.compact-<hash>.parquet     many runs' records; see below
    <store>/samples/device=<slug>/month=YYYY-MM/<run_id>.parquet     raw samples; may be deleted by age
    <store>/accepted/<time>-<hash>.json                              a level that was accepted on purpose
    <store>/triage/<time>-<hash>.json                                the state of an event that a person set
    <store>/calibrations/device=<slug>/<calibration_id>.json         the result of comparing a device with itself

While a run is under way each finished batch is published as a part, `<run_id>.part-000003.parquet`, which any reader
sees at once. The records of each case are a part of their own, which is swapped for a fuller one after each of the case's
rounds. Closing the run writes all its parts as the one file above and deletes them. A file appears whole or not at all
(hidden temporary name, fsync, rename; on an object store one put), and but for such parts never changes afterwards. So:

- A run that was killed leaves its parts. They are as good as the one file and stay: no reader has to find out
  whether their owner still lives, and there is nothing to recover.
- Killed between writing the one file and deleting the parts, a run is there twice. Our readers take the one file; the
  next reader or writer deletes such parts, after checking that the one file holds as many rows.
- Imported runs have no parts (`writer.write_run`): the samples and then the records are one file each.
- Compacting (`upkeep.py`) writes the records of old runs into one file, reads it back, and then deletes the files that it was made of.
  Killed in between, or beside another, or where a store is copied into another, runs are there twice. Our readers take each from one file
  (`compacted.choose`); compacting again deletes the rest.
- Two runs never write the same file: the run's id is in the name.

Deliberately absent: locks and owners (nothing would read them), an index that is needed (`records/_compacted.json` spares the
ends of compacted files, and is believed only where it fits their names), appending and updating.
"""
