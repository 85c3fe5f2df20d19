"""Exports of Apple Health: quantities each minute, workouts as labels, and files that would eat memory refused."""

from __future__ import annotations

import tracemalloc
import zipfile
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge_sdk.cli import main
from edge_sdk.data.traces.form import Stated
from edge_sdk.data.traces.read import read_trace
from edge_sdk.data.traces.repairs import Repairs
from edge_sdk.errors import UsageError
from edge_sdk.replay.imports import apple_health
from edge_sdk.replay.imports.apple_health import amounts, means, read_health_export
from edge_sdk.replay.imports.importing import import_traces
from edge_sdk.replay.imports.recording import Recorded

BEGAN = 1_714_489_200
"""A whole minute."""
ZONE = timezone(timedelta(hours=2))
TYPE = """<!DOCTYPE HealthData [
<!ELEMENT HealthData (ExportDate,Me,(Record|Workout)*)>
<!ATTLIST HealthData
  locale CDATA #REQUIRED
>
]>"""
HEART, STEPS = "HeartRate", "StepCount"
Record = tuple[str, float, float, float, str, str]
"""Type, seconds from BEGAN at which it begins and ends, value, unit, source."""


def date(at: float) -> str:
    return datetime.fromtimestamp(BEGAN + at, ZONE).strftime("%Y-%m-%d %H:%M:%S %z")


def text_of(records: Sequence[Record], inside: str = "", kind: str = TYPE) -> str:
    rows = "".join(
        f' <Record type="HKQuantityTypeIdentifier{name}" sourceName="{source}" unit="{unit}" startDate="{date(a)}" '
        f'endDate="{date(b)}" value="{value}"><MetadataEntry key="k" value="v"/></Record>\n'
        for name, a, b, value, unit, source in records
    )
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{kind}\n<HealthData locale="de_DE">\n{rows}{inside}</HealthData>\n'


def beats(minutes: Sequence[int], source: str = "Watch") -> list[Record]:
    """Two measurements in each of these minutes, around 60 and its number."""
    return [(HEART, 60 * m + s, 60 * m + s, 60 + m + s / 10, "count/min", source) for m in minutes for s in (10, 30)]


def write(path: Path, text: str) -> Path:
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("apple_health_export/export_cda.xml", "<ClinicalDocument/>")
            archive.writestr("apple_health_export/workout-routes/route.gpx", "<gpx/>")
            archive.writestr("apple_health_export/export.xml", text)
    else:
        path.write_text(text)
    return path


def read(path: Path, **said: Any) -> list[Recorded]:
    known = Stated(**said)
    return list(read_health_export(path, "ann", known, Repairs(path, known.strict)))


def column(found: Recorded, channel: str) -> list[float]:
    values: list[float] = found.rows.values[:, found.rows.channels.index(channel)].tolist()
    return values


RUN = (
    '<Workout workoutActivityType="HKWorkoutActivityTypeTraditionalStrengthTraining" '
    f'startDate="{date(130)}" endDate="{date(300)}"/>'
)


@pytest.mark.parametrize("name", ["export.zip", "export.xml"])
def test_an_export_becomes_minutes_with_workouts_as_labels(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    steps: list[Record] = [(STEPS, 30, 150, 120, "count", "Watch"), (STEPS, 200, 200, 7, "count", "Watch")]
    phone: list[Record] = [(STEPS, 0, 60, 99, "count", "Phone")]
    oxygen: list[Record] = [("OxygenSaturation", 60, 60, 0.97, "%", "Watch")]
    source = write(tmp_path / name, text_of([*beats(range(8)), *steps, *phone, *oxygen], RUN))
    assert main(["traces", "import", str(source), str(tmp_path / "out")]) == 0
    said = capsys.readouterr().out
    assert "step_count: 1 records of other sources or units left out (--by sourceName: a trace of each source)" in said
    assert "oxygen_saturation left out, known for less than half of the minutes" in said
    trace = read_trace(tmp_path / "out" / "export.csv")
    assert trace.began == BEGAN and trace.channels == ("heart_rate", "step_count")
    assert trace.time.tolist() == [60.0 * k for k in range(8)] and trace.values[:, 0].tolist() == [
        62 + k for k in range(8)
    ]
    assert trace.values[:, 1].tolist() == [30, 60, 30, 7, 0, 0, 0, 0]
    labels = ["traditional_strength_training" if code == 0 else "" for code in trace.codes]
    assert labels == ["", "", "", *["traditional_strength_training"] * 2, "", "", ""]


def sleep(stage: str, began: float, ended: float, source: str = "Watch") -> str:
    return (
        f'<Record type="HKCategoryTypeIdentifierSleepAnalysis" sourceName="{source}" '
        f'value="HKCategoryValueSleepAnalysis{stage}" startDate="{date(began)}" endDate="{date(ended)}"/>'
    )


NIGHT = (
    *(sleep("InBed", 0, 480, "Phone"), sleep("AsleepUnspecified", 0, 480, "Phone")),
    *(sleep("AsleepCore", 60, 180), sleep("AsleepDeep", 180, 240), sleep("AsleepREM", 240, 300)),
    *(sleep("Awake", 300, 360), sleep("Dreaming", 360, 420), sleep("AsleepCore", 480, 420)),
)
STAGES = ["", "asleep_core", "asleep_core", "asleep_deep", "asleep_rem", "awake", "", ""]


def labels_of(found: Recorded) -> list[str]:
    return [found.rows.words[code] for code in found.rows.codes.tolist()]


def test_stages_of_sleep_are_labels_by_the_source_that_has_most(tmp_path: Path) -> None:
    text = text_of([*beats(range(8)), *beats(range(8), "Phone")], "".join(NIGHT))
    (found,) = read(write(tmp_path / "a.xml", text))
    assert labels_of(found) == STAGES
    assert "sleep: stages of Watch; 1 records of other sources left out" in " ".join(found.repairs.notes)
    phone, watch = read(write(tmp_path / "b.xml", text), by="sourceName")
    assert labels_of(watch) == STAGES and labels_of(phone) == ["asleep"] * 8
    trained = write(tmp_path / "c.xml", text_of(beats(range(8)), "".join(NIGHT) + RUN))
    assert labels_of(read(trained)[0])[3:5] == ["traditional_strength_training"] * 2, "a workout is no sleep"


def test_too_many_stages_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apple_health, "MOST_STAGES", 3)
    with pytest.raises(UsageError, match="more than 3 records of sleep"):
        read(write(tmp_path / "a.xml", text_of(beats(range(8)), "".join(NIGHT))))


def test_units_are_kept_and_channels_may_be_named(tmp_path: Path) -> None:
    oxygen: list[Record] = [
        ("OxygenSaturation", 60, 60, 0.97, "%", "Watch"),
        ("VO2Max", 60, 60, 40, "mL/min·kg", "Watch"),
    ]
    path = write(tmp_path / "export.xml", text_of([*beats(range(4)), (STEPS, 0, 60, 9, "count", "Watch"), *oxygen]))
    (found,) = read(path)
    assert found.units == {"heart_rate": "count/min", "step_count": "count/min"} and found.zoned and found.dated
    (named,) = read(path, channels=("vo2_max",))
    assert named.rows.channels == ("vo2_max",) and column(named, "vo2_max") == [40] and named.rows.time[0] == BEGAN + 60
    with pytest.raises(
        UsageError, match=r"export\.xml: no channel 'hr' among heart_rate, oxygen_saturation, step_count, vo2"
    ):
        read(path, channels=("hr",))


def test_each_source_may_have_a_trace(tmp_path: Path) -> None:
    path = write(tmp_path / "export.zip", text_of([*beats(range(6)), *beats(range(3), "Ann&apos;s ring")]))
    made, _ = import_traces(path, tmp_path / "out", Stated(by="sourceName"))
    assert [(line.name, line.samples) for line in made] == [("Ann-s-ring", 3), ("Watch", 6)]
    with pytest.raises(UsageError, match=r"export\.zip: --by device; of an export of Apple Health expected sourceName"):
        read(path, by="device")


def test_minutes_without_a_measurement_are_lines_or_a_gap(tmp_path: Path) -> None:
    (found,) = read(write(tmp_path / "export.xml", text_of(beats([0, 4, 30, 31]))))
    assert ((found.rows.time - BEGAN) / 60).tolist() == [0, 1, 2, 3, 4, 30, 31]
    assert column(found, "heart_rate")[:5] == [62, 63, 64, 65, 66]


def test_amounts_and_means_by_their_definition() -> None:
    random, edges = np.random.default_rng(5), np.arange(31) * 60.0
    began = np.sort(random.uniform(0, 1500, 40))
    ended, values = began + random.uniform(0, 200, 40) * (random.random(40) < 0.7), random.uniform(0, 50, 40)
    found = amounts(edges[:-1], began, ended, values)
    lasts = np.maximum(ended - began, 1.0)
    for k in range(30):
        within = np.clip(np.minimum(began + lasts, edges[k + 1]) - np.maximum(began, edges[k]), 0, None)
        assert found[k] == pytest.approx((values * within / lasts).sum(), abs=1e-5)
    (minutes, mean), middle = means(began, ended, values), (began + ended) / 2
    assert minutes.tolist() == [*range(minutes[0], minutes[-1] + 1)], "gaps here are short"
    for k, at in zip(minutes.tolist(), mean, strict=True):
        own = (middle >= edges[k]) & (middle < edges[k + 1])
        assert not own.any() or at == pytest.approx(values[own].mean())


def test_minutes_on_a_line_are_those_between_near_neighbours() -> None:
    at = np.array([0.0, 180.0, 1200.0])
    minutes, mean = means(at, at, np.array([1.0, 4.0, 9.0]))
    assert minutes.tolist() == [0, 1, 2, 3, 20] and mean.tolist() == [1, 2, 3, 4, 9]


def test_years_between_two_records_take_no_memory(tmp_path: Path) -> None:
    """A hundred kinds of which each has a record in two years: 0.1 MB of text once became 20 GB of minutes."""
    kinds = [f"Kind{chr(65 + n // 26)}{chr(97 + n % 26)}" for n in range(100)]
    years: list[Any] = [(kind, at, at, 1, "count", "W") for kind in kinds for at in (0, 25 * 365 * 86_400)]
    tracemalloc.start()
    (found,) = read(write(tmp_path / "a.xml", text_of(years)))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.rows.values.shape == (2, 100) and peak < 20e6


def test_more_minutes_than_a_table_may_have_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apple_health, "MOST_CELLS", 5)
    with pytest.raises(UsageError, match="6 minutes of 1 channels; name fewer with --channels"):
        read(write(tmp_path / "a.xml", text_of(beats(range(6)))))


@pytest.mark.parametrize("what", ["workouts", "records of quantities"])
def test_no_more_is_kept_than_a_life_has(what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a packed file a record takes a bit."""
    monkeypatch.setattr(apple_health, "MOST_WORKOUTS" if what == "workouts" else "MOST_RECORDS", 3)
    run = f'<Workout workoutActivityType="HKWorkoutActivityTypeRun" startDate="{date(0)}" endDate="{date(9)}"/>'
    few = text_of(beats([0]), run * 3)
    assert len(read(write(tmp_path / "few.xml", few))[0].rows.time) == 1
    text = text_of(beats([0]), run * 4) if what == "workouts" else text_of(beats([0, 1]))
    with pytest.raises(UsageError, match=f"more than 3 {what}"):
        read(write(tmp_path / "many.xml", text))


DAMAGE = {
    "packed in an unknown way": lambda data: put(put(data, b"PK\x03\x04", 8, 77), b"PK\x01\x02", 10, 77),
    "encrypted": lambda data: put(put(data, b"PK\x03\x04", 6, 1), b"PK\x01\x02", 8, 1),
}


def put(data: bytes, mark: bytes, offset: int, value: int) -> bytes:
    at = data.index(mark) + offset
    return data[:at] + bytes([value]) + data[at + 1 :]


@pytest.mark.parametrize("damage", DAMAGE)
def test_an_archive_that_cannot_be_unpacked_is_left_out_by_its_name(damage: str, tmp_path: Path) -> None:
    """One such file once ended the import of a whole folder with a traceback."""
    archive = tmp_path / "a" / "export.zip"
    archive.parent.mkdir()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("apple_health_export/export.xml", text_of(beats([0, 1])))
    archive.write_bytes(DAMAGE[damage](archive.read_bytes()))
    with pytest.raises(UsageError, match=r"export\.zip: damaged"):
        import_traces(archive.parent, tmp_path / "out", Stated())


def test_an_archive_with_a_name_that_is_none_is_no_source(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as file:
        file.writestr("\u00fcx", "x")
    data = (tmp_path / "a.zip").read_bytes().replace("\u00fcx".encode(), b"\xff\xfex")
    (tmp_path / "a.zip").write_bytes(data)
    assert not apple_health.is_health_export(tmp_path / "a.zip")


def test_records_that_are_no_numbers_and_those_in_others_do_not_count(tmp_path: Path) -> None:
    odd: list[Any] = [
        (HEART, 0, 0, "high", "count/min", "Watch"),
        (HEART, 0, 0, "nan", "count/min", "Watch"),
        (HEART, 60, 0, 3, "x", "W"),
    ]
    again = text_of(beats([0, 1]))
    inner = again[again.index(" <Record") : again.index("</HealthData>")]
    (found,) = read(
        write(tmp_path / "a.xml", text_of([*odd, *beats([0, 1])], f"<Correlation>{inner * 3}</Correlation>"))
    )
    assert column(found, "heart_rate") == [62, 63] and "left out" not in " ".join(found.repairs.notes)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (text_of(beats([0]))[:-40], "damaged, or no export of Apple Health"),
        (text_of([]), "no records of quantities"),
        ("<!DOCTYPE HealthData><other/>", "no <HealthData> in it"),
        (text_of(beats([0]), "&boom;"), "undefined entity"),
        (text_of([(HEART, 0, 0, 60, "c", "W"), (HEART, 4e9, 4e9, 60, "c", "W")]), "expected 60 years at most"),
        (text_of(beats([0]), "<a>" * 40 + "</a>" * 40), "elements in each other, 32 deep"),
    ],
)
def test_what_is_damaged_or_something_else_is_refused_by_name(text: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=rf"export\.xml: .*{words}"):
        read(write(tmp_path / "export.xml", text))


def test_entities_are_never_declared_and_a_document_type_with_mistakes_does_not_matter(tmp_path: Path) -> None:
    bomb = '<!DOCTYPE HealthData [<!ENTITY a "aaaaaaaaaa"><!ENTITY boom "&a;&a;&a;"><!ATTLIST startDate ((( >]>'
    (found,) = read(write(tmp_path / "a.xml", text_of(beats([0, 1]), kind=bomb)))
    assert len(found.rows.time) == 2
    with pytest.raises(UsageError, match="undefined entity"):
        read(write(tmp_path / "b.xml", text_of(beats([0, 1]), "<x>&boom;</x>", kind=bomb)))


def test_a_file_that_would_eat_memory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long = write(tmp_path / "a.zip", text_of(beats([0]), f'<x y="{"0" * (1 << 22)}"/>'))
    with pytest.raises(UsageError, match=r"a\.zip: an element of more than 1048576 bytes"):
        read(long)
    monkeypatch.setattr(apple_health, "MOST_SERIES", 5)
    with pytest.raises(UsageError, match="more than 5 kinds of records"):
        read(write(tmp_path / "b.xml", text_of([(f"Kind{k}", 0, 0, 1, "c", "W") for k in range(9)])))
    monkeypatch.setattr(apple_health, "MOST_BYTES", 1 << 16)
    with pytest.raises(UsageError, match="more than 65536 bytes of records"):
        read(write(tmp_path / "c.zip", text_of(beats(range(2000)))))


def test_other_archives_are_no_sources(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "photos.zip", "w") as archive:
        archive.writestr("a.jpg", b"")
    (tmp_path / "page.xml").write_text("<html/>")
    (tmp_path / "broken.zip").write_bytes(b"PK")
    with pytest.raises(UsageError, match=r"nothing to import; expected .*an export of Apple Health"):
        import_traces(tmp_path, tmp_path.parent / "out")
    with zipfile.ZipFile(tmp_path / "two.zip", "w") as archive:
        for name in ("a.xml", "b.xml"):
            archive.writestr(f"apple_health_export/{name}", text_of([]))
    with pytest.raises(UsageError, match=r"two\.zip: .*a\.xml, .*b\.xml in apple_health_export/; expected export\.xml"):
        read(tmp_path / "two.zip")
