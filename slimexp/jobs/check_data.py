"""The job `check_data`: every file or record once; all faults, duplicates and class counts; sheets of samples."""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from slimexp.config import Config
from slimexp.config.check_data import OnFault
from slimexp.config.dataset import OnBadImage
from slimexp.dataset.checks import counted
from slimexp.dataset.split import AnySplit, Dataset
from slimexp.dataset.summary import fingerprint
from slimexp.errors import Interrupted, UserError
from slimexp.jobs import build
from slimexp.jobs.auto import AUTO
from slimexp.jobs.lock import exclusive
from slimexp.jobs.record import FINGERPRINT_TAG, earlier_run, recorded, refuse_other_job
from slimexp.jobs.starting import turn_first_pixels
from slimexp.pipeline.check import duplicates as duplicates_of
from slimexp.pipeline.check.contact_sheet import TILE_PX, draw_contact_sheet
from slimexp.pipeline.check.duplicates import Duplicates, find_duplicates, label_text
from slimexp.pipeline.check.examine import Examiner
from slimexp.pipeline.check.progress import WalkProgress
from slimexp.pipeline.check.report import FaultRow, Remark, SplitReport, class_rows, class_warnings, write_table
from slimexp.pipeline.check.samples import Shower, take_samples
from slimexp.pipeline.check.summary import Summary
from slimexp.pipeline.check.walk import walk
from slimexp.pipeline.doctor.cpus import available_cpus, whole_cpus
from slimexp.tracking import Tracker
from slimexp.training.classifier import choose_image_size
from slimexp.training.signals import StopSignals

__all__ = ["CLASSES", "DUPLICATES", "FAULTS", "REMARKS", "RESULT_TAG", "SHEETS", "run"]

_log = logging.getLogger("slimexp")

FAULTS, REMARKS, DUPLICATES, CLASSES = "faults.csv", "remarks.csv", "duplicates.csv", "classes.csv"
SHEETS = {"train": "samples.png", "eval": "eval_samples.png"}
RESULT_TAG = "check.result"


def run(config: Config, overrides: Sequence[str] = ()) -> None:
    """Checks the dataset that is configured, and leaves tables and figures in the run's folder and with the tracker.

    The run is FINISHED when the data are sound, or with `check_data.on_fault=report`; else it is FAILED, so that its
    status says the same as the exit code. The tables and figures are there in both cases.

    Args:
        config: Checked.
        overrides: What the command changed, for the run's name.

    Raises:
        UserError: If there are faults and `check_data.on_fault` is `error`, or the dataset cannot be loaded.
        Interrupted: After a signal; what was found until then is said, and is in the tables of faults and remarks.
    """
    folder = Path(config.run_dir)
    with StopSignals() as signals, exclusive(folder):
        refuse_other_job(config, earlier_run(folder))
        with recorded(config, overrides, None, {}, signals) as tracker:
            _log.info("Run folder: %s", folder)
            num_faults = check(config, tracker, signals)
            if num_faults and config.check_data.on_fault is OnFault.error:
                raise UserError(
                    f"{counted(num_faults, 'fault')} found; {folder / FAULTS} lists all. Mend, replace or take out "
                    "what it names. (check_data.on_fault=report only reports them, with exit code 0.)"
                )


def check(config: Config, tracker: Tracker, signals: StopSignals) -> int:
    """Carries the check out and returns the number of faults."""
    build.check_targets(config)
    config = _with_counts(config)
    data = build.dataset(_tolerant(config))
    image_size = choose_image_size(build.network(config), config.model.image_size, data.image_side_px)
    settings = build.pipeline_settings(config)
    turn_first_pixels(config.run_dir)
    examiner = Examiner(decoder=settings.decoder, exif=settings.exif, threads=settings.threads)
    reports: list[SplitReport] = []
    summary = Summary(reports, show=config.check_data.show)
    folder = Path(config.run_dir)
    started = time.monotonic()
    try:
        for split in (data.train, data.eval):
            if split is not None:
                reports.append(SplitReport(split, data.num_classes))
                _examine(reports[-1], examiner, config, signals)
    except (Interrupted, KeyboardInterrupt):
        _write_faults(folder, reports)
        summary.print_how_far()
        summary.print_faults(more_in=FAULTS)
        print(f"So far:      {folder / FAULTS}", flush=True)
        raise
    secs = time.monotonic() - started
    duplicates = find_duplicates(reports, data.class_names)
    rows = class_rows(data, reports)
    _write_faults(folder, reports)
    write_table(folder / DUPLICATES, duplicates_of.COLUMNS, duplicates.rows)
    write_table(folder / CLASSES, list(rows[0]), rows)
    for name in (FAULTS, REMARKS, DUPLICATES, CLASSES):
        tracker.log_artifact(folder / name)
    _record(data.train, reports, duplicates, secs, tracker)

    summary.print_counts(data, duplicates, secs)
    summary.print_memory(settings, image_size)
    summary.print_classes(rows, is_single=data.task == "single", more_in=CLASSES)
    summary.print_faults(more_in=FAULTS)
    summary.print_remarks(more_in=REMARKS)
    summary.print_notes(_notes(data, rows, duplicates, examiner))
    sheets = _draw(config, data, reports, image_size, tracker, signals)
    print("\n".join(["", *(f"Samples:     {path}" for path in sheets), f"Run folder:  {folder}"]), flush=True)
    return sum(report.num_faults for report in reports)


def _with_counts(config: Config) -> Config:
    """Puts the cores that there are in the place of `auto`: nothing is measured for a check."""
    names = [name for name in ("threads", "readers") if getattr(config.pipeline, name) == AUTO]
    cores = whole_cpus(available_cpus())
    return dataclasses.replace(
        config,
        pipeline=dataclasses.replace(config.pipeline, **dict.fromkeys(names, cores)),  # type: ignore[arg-type]
    )


def _tolerant(config: Config) -> Config:
    """Returns the configuration with a dataset that lets every file and shard through, whatever is wrong with it."""
    option = config.dataset
    wanted: dict[str, Any] = {"on_bad_image": OnBadImage.skip, "check_files": False}
    if isinstance(option, dict):
        wanted["on_bad_image"] = OnBadImage.skip.value
        changed: Any = {**option, **{key: value for key, value in wanted.items() if key in option}}
    else:
        fields = {field.name for field in dataclasses.fields(option)}
        changed = dataclasses.replace(option, **{key: value for key, value in wanted.items() if key in fields})
    return dataclasses.replace(config, dataset=changed)


def _examine(report: SplitReport, examiner: Examiner, config: Config, signals: StopSignals) -> None:
    """Goes through a split."""
    split = report.split
    with WalkProgress(f"Checking {split.name}", len(split)) as progress:
        for finding in walk(
            split,
            examiner,
            threads=config.pipeline.threads,
            readers=config.pipeline.readers,
            check_stop=signals.check,
        ):
            report.add(finding)
            progress.update(report.num_done, report.num_faults)


def _write_faults(folder: Path, reports: Sequence[SplitReport]) -> None:
    faults: list[Any] = [row for report in reports for row in report.faults]
    remarks: list[Any] = [row for report in reports for row in report.remarks]
    for name, kind, rows in ((FAULTS, FaultRow, faults), (REMARKS, Remark, remarks)):
        columns = [field.name for field in dataclasses.fields(kind)]
        write_table(folder / name, columns, map(dataclasses.asdict, rows))


def _record(
    split: AnySplit, reports: Sequence[SplitReport], duplicates: Duplicates, secs: float, tracker: Tracker
) -> None:
    """Leaves the numbers with the tracker."""
    num_done, num_faults = (sum(getattr(r, name) for r in reports) for name in ("num_done", "num_faults"))
    metrics = {
        "check/examples": num_done,
        "check/faults": num_faults,
        "check/lost_examples": sum(row.num_examples for report in reports for row in report.faults),
        "check/damaged_shards": sum(report.num_damaged_shards for report in reports),
        "check/remarks": sum(len(report.remarks) for report in reports),
        "check/duplicates": duplicates.num_repeats,
        "check/leaks": duplicates.num_leaks,
        "check/label_conflicts": duplicates.num_conflicts,
        "check/images_per_sec": num_done / max(secs, 1e-9),
    }
    for report in reports:
        metrics[f"check/{report.split.name}_examples"] = report.num_done
        metrics[f"check/{report.split.name}_faults"] = report.num_faults
    tracker.log_metrics(0, metrics)
    tracker.set_tags({RESULT_TAG: "faults" if num_faults else "sound", FINGERPRINT_TAG: fingerprint(split)})


def _notes(data: Dataset, rows: Sequence[dict[str, object]], duplicates: Duplicates, examiner: Examiner) -> list[str]:
    """Returns what is no fault, and yet to be thought about."""
    notes = class_warnings(data, rows)
    if duplicates.num_repeats:
        repeats = counted(duplicates.num_repeats, "example repeats", "examples repeat")
        notes.append(f"{repeats} the bytes of an earlier one, see {DUPLICATES}.")
    if duplicates.num_leaks:
        leaks = counted(duplicates.num_leaks, "evaluation example is", "evaluation examples are")
        notes.append(f"{leaks} in training too, so that the network would be judged by what it learns from.")
    if duplicates.num_conflicts:
        conflicts = counted(duplicates.num_conflicts, "picture has", "pictures have")
        notes.append(f"{conflicts} different labels in different places, see {DUPLICATES}.")
    if not examiner.finds_damage:
        notes.append(
            "of damage in the midst of a JPEG's pixel data only the native op tells, which is not used here "
            "(pipeline.decoder=tensorflow, or it is not built: ./scripts/build_ops)."
        )
    return notes


def _draw(
    config: Config,
    data: Dataset,
    reports: Sequence[SplitReport],
    image_size: int,
    tracker: Tracker,
    signals: StopSignals,
) -> list[Path]:
    """Draws a sheet of samples of each split that has a sound example; returns the files."""
    paths = []
    access = build.file_access(build.shrunk_cache(config)) if config.check_data.samples else {}
    for report in reports if config.check_data.samples else ():
        name = report.split.name
        is_training = name == "train"
        preprocessing = build.preprocessing(config, size_px=image_size, is_training=is_training)
        samples = take_samples(
            report.split,
            is_sound=report.is_sound,
            preprocessing=preprocessing,
            settings=build.pipeline_settings(config),
            seed=config.seed,
            is_training=is_training,
            count=config.check_data.samples,
            original_px=TILE_PX,
            check_stop=signals.check,
            **access,
        )
        if not samples:
            _log.warning("No example of %s can be used, so there are no samples to show.", name)
            continue
        option: Any = config.preprocessing
        how = option.get("name", "") if isinstance(option, dict) else option.name
        stretched = ", contrast stretched" if Shower(preprocessing).is_stretched else ""
        title = (
            f"{data.name}, {name}: what the network gets ({image_size} x {image_size}, preprocessing={how}{stretched})"
            f", and beside it the original. seed={config.seed}"
        )
        paths.append(Path(config.run_dir) / "figures" / SHEETS[name])
        captions = [label_text(report, sample.index, data.class_names) for sample in samples]
        draw_contact_sheet(samples, captions, paths[-1], title)
        tracker.log_artifact(paths[-1], "figures")
    return paths
