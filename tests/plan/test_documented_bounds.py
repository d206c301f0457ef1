"""What the stores refuse whatever the rate: sizes of parts and objects; and checkpoints that outlast their interval."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from resilient_io import cli
from resilient_io.plan.words import number_text, size_text, time_text

# The reads are far below their limits, so that what is said is of the checkpoint.
READS = "--ranks 512 --cloud azure --object-size 1MiB --samples-per-s 1"
LATE = f"{READS} --checkpoint-size 1TiB --writers 1 --part-size 21MiB --checkpoint-every 1m"


def plan(capsys: pytest.CaptureFixture[str], text: str, status: int) -> dict[str, Any]:
    """Return what the command prints as JSON."""
    assert cli.main(["plan", *text.split(), "--json"]) == status
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def said(capsys: pytest.CaptureFixture[str], text: str, status: int) -> str:
    assert cli.main(["plan", *text.split()]) == status
    return capsys.readouterr().out


def texts(found: dict[str, Any]) -> list[str]:
    return [one["text"] for one in found["advice"]]


# ---- parts and objects -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("--ranks 4 --checkpoint-size 1TiB --part-size 1", "write --part-size 27MiB or more"),
        ("--ranks 4 --checkpoint-size 1GiB --part-size 1MiB", "write --part-size 5MiB or more"),
        ("--ranks 4 --checkpoint-size 1TiB --part-size 26MiB", "at most 10,000 parts of an object"),
        ("--ranks 4 --checkpoint-size 1TiB --part-size 6GiB", "write --part-size 5GiB or less"),
        ("--ranks 4 --checkpoint-size 1PiB --part-size 5GiB", "write --files-per-writer 6 or more"),
        ("--ranks 4 --cloud azure --checkpoint-size 1TiB --part-size 1", "write --part-size 6MiB or more"),
        ("--ranks 4 --cloud azure --checkpoint-size 1TiB --part-size 5MiB", "at most 50,000 blocks of a blob"),
        (LATE.replace("21MiB", "4MiB"), "write --part-size 21MiB or more"),
        ("--ranks 4 --cloud azure --checkpoint-size 1TiB --part-size 4001MiB", "write --part-size 4000MiB or less"),
    ],
)
def test_parts_that_the_store_refuses_are_not_planned(capsys: pytest.CaptureFixture[str], text: str, says: str) -> None:
    assert cli.main(["plan", *text.split()]) == 2
    told = capsys.readouterr()
    assert says in told.err
    assert told.out == ""
    wanted = re.search(r"write (--\S+ \S+)", told.err)
    assert wanted is not None
    option = wanted.group(1).split()[0]
    again = [*re.sub(rf"{option} \S+", "", text).split(), *wanted.group(1).split()]
    assert cli.main(["plan", *again]) in (0, 1), "what the error says to write is accepted"


@pytest.mark.parametrize(("cloud", "part_mib"), [("s3", 5), ("s3", 5 * 1024), ("azure", 1), ("azure", 4000)])
def test_parts_at_the_bounds_are_planned(capsys: pytest.CaptureFixture[str], cloud: str, part_mib: int) -> None:
    plan(capsys, f"--ranks 8 --cloud {cloud} --checkpoint-size 16GiB --part-size {part_mib}MiB", 0)


@pytest.mark.parametrize(
    ("text", "part_mib"),
    [
        ("--ranks 64 --checkpoint-size 64GiB", 50),
        ("--ranks 1 --checkpoint-size 1TiB", 105),  # 104.86 MiB in 10,000 parts
        ("--ranks 1 --checkpoint-size 40TiB", 4195),
        ("--ranks 1 --cloud azure --checkpoint-size 100TiB", 2098),
    ],
)
def test_parts_are_chosen_so_that_an_object_has_no_more_than_it_may(
    capsys: pytest.CaptureFixture[str], text: str, part_mib: int
) -> None:
    found = plan(capsys, text, 0)
    assert found["job"]["part_bytes"] == part_mib * 2**20
    assert (f"in parts of {size_text(part_mib * 2**20)}" in said(capsys, text, 0)) == (part_mib != 50)


def test_too_few_writers_for_the_size_of_an_object_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    found = plan(capsys, "--ranks 4 --writers 1 --checkpoint-size 100TiB", 1)
    assert "let 3 ranks or more write (--writers 3): a file of 100 TiB" in texts(found)[0]
    assert (
        found["advice"][0]["after"] == plan(capsys, "--ranks 4 --writers 3 --checkpoint-size 100TiB", 0)["forecasts"][1]
    )
    assert plan(capsys, "--ranks 4 --writers 1 --cloud azure --checkpoint-size 100TiB", 0)["advice"] == []


def test_too_few_ranks_for_the_size_of_an_object_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    found = plan(capsys, "--ranks 2 --checkpoint-size 1PiB", 1)
    assert "write 11 files or more for each writer (--files-per-writer 11)" in texts(found)[0]
    plan(capsys, "--ranks 2 --checkpoint-size 1PiB --files-per-writer 11", 0)


def test_no_advice_makes_parts_that_the_store_refuses(capsys: pytest.CaptureFixture[str]) -> None:
    """One writer for each machine has eight times as much in one object: more parts of 50 MiB than there may be."""
    found = plan(capsys, "--ranks 512 --checkpoint-size 200TiB --part-size 50MiB --write-limit 100", 1)
    one_each = [text for text in texts(found) if text.startswith("let one rank of each machine write")]
    assert all("in parts of 328 MiB" in text for text in one_each)
    assert one_each


def test_an_object_to_read_that_cannot_be(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["plan", *"--ranks 4 --object-size 100TiB".split()]) == 2
    assert "--object-size 100 TiB: an object of s3 has at most 48.8 TiB" in capsys.readouterr().err
    plan(capsys, "--ranks 4 --cloud azure --object-size 100TiB --samples-per-s 1 --samples-per-object 1000000000", 0)


@pytest.mark.parametrize("option", ["object-size", "checkpoint-size", "read-size"])
def test_the_bound_that_the_text_names_is_accepted(capsys: pytest.CaptureFixture[str], option: str) -> None:
    command = "plan --ranks 4 --cloud azure --checkpoint-size 1GiB"
    with pytest.raises(SystemExit):
        cli.main([*command.split(), f"--{option}", "9999999EiB"])
    bound = re.search(r"from 1 byte to ([\d.]+\w+)", capsys.readouterr().err)
    assert bound is not None
    assert cli.main([*command.split(), f"--{option}", bound.group(1)]) in (0, 1)


# ---- longer than the interval ----------------------------------------------------------------------------------------


def test_a_checkpoint_that_takes_longer_than_its_interval_is_a_stall(capsys: pytest.CaptureFixture[str]) -> None:
    found = plan(capsys, LATE, 1)
    one = found["forecasts"][1]
    assert one["took_s"] == pytest.approx(4994 * (0.025 + 2**40 / 49_933 / 85e6))
    assert one["late_s"] == one["stall_s"] == pytest.approx(one["took_s"] - 60)
    assert one["stall_share"] == pytest.approx(1 - 60 / one["took_s"])
    out = said(capsys, LATE, 1)
    assert "longer than the 60 s until the next one" in out
    assert "Nothing to change" not in out


def test_advice_for_a_checkpoint_that_takes_too_long(capsys: pytest.CaptureFixture[str]) -> None:
    found = plan(capsys, LATE, 1)
    more = next(one["after"] for one in found["advice"] if one["text"] == "let 3 ranks write (--writers 3)")
    assert more["uses"][0]["share"] < 0.8, "no more writers than the account serves"
    every = next(re.search(r"--checkpoint-every (\d+[mh])", text) for text in texts(found) if "every" in text)
    assert every is not None
    rare = LATE.replace("--checkpoint-every 1m", f"--checkpoint-every {every.group(1)}")
    assert plan(capsys, rare, 0)["forecasts"][1]["late_s"] == 0.0


def test_larger_parts_are_advised_where_latency_makes_a_checkpoint_late(capsys: pytest.CaptureFixture[str]) -> None:
    job = LATE.replace("1TiB", "100GiB").replace("21MiB", "3MiB")
    assert any(text.startswith("write parts of 24 MiB instead of 3 MiB") for text in texts(plan(capsys, job, 1)))


def test_enough_writers_are_advised_to_be_done_in_time(capsys: pytest.CaptureFixture[str]) -> None:
    job = LATE.replace("every 1m", "every 15m")
    more = next(one["after"] for one in plan(capsys, job, 1)["advice"] if one["text"].startswith("let 2 ranks write"))
    assert more == plan(capsys, job.replace("--writers 1", "--writers 2"), 0)["forecasts"][1]
    assert more["late_s"] == more["stall_s"] == 0.0


def test_more_writers_are_advised_where_there_is_hardly_a_limit(capsys: pytest.CaptureFixture[str]) -> None:
    job = "--ranks 4 --samples-per-s 1 --checkpoint-size 1TiB --writers 1 --checkpoint-every 1m --write-limit 1e308"
    assert "let 4 ranks write (--writers 4)" in texts(plan(capsys, job, 1))


def test_a_checkpoint_that_is_late_without_a_refusal_speaks_of_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert "refused" not in said(capsys, LATE, 1)


def test_without_an_interval_no_checkpoint_is_late(capsys: pytest.CaptureFixture[str]) -> None:
    one = plan(capsys, LATE.replace("--checkpoint-every 1m", ""), 0)["forecasts"][1]
    assert one["late_s"] == one["stall_s"] == 0.0


# ---- limits that were given ------------------------------------------------------------------------------------------


def test_a_large_account_is_not_advised_to_who_has_it(capsys: pytest.CaptureFixture[str]) -> None:
    found = plan(capsys, "--ranks 4 --cloud azure --account large --account-limit 100", 1)
    assert not [text for text in texts(found) if "--account large" in text]


def test_a_large_account_is_forecast_with_the_limit_that_was_given(capsys: pytest.CaptureFixture[str]) -> None:
    """Bytes are the tightest: the larger account helps, and the requests stay what support granted."""
    job = "--ranks 64 --cloud azure --object-size 32MiB --samples-per-s 8 --account-limit 2000"
    found = plan(capsys, job, 1)
    large = next(one["after"] for one in found["advice"] if "--account large" in one["text"])
    assert large == plan(capsys, f"{job} --account large", 0)["forecasts"][0]
    assert {use["kind"]: use["most_per_s"] for use in large["uses"]}["account"] == 2000


# ---- numbers for people ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("got", "want"),
    [
        (time_text(0.0), "0 s"),
        (time_text(6.74), "6.74 s"),
        (time_text(60.0), "60 s"),
        (time_text(3910.0), "65 min"),
        (time_text(130.0), "2.2 min"),
        (time_text(6.87e8), "7,951 days"),
        (time_text(36_000.0), "10 h"),
        (number_text(30_000.0), "30,000"),
        (number_text(0.5), "0.5"),
        (number_text(1e-9), "<0.001"),
        (size_text(1023.9), "1,024 B"),
        (size_text(2**60), "1 EiB"),
        (size_text(2**72), "4,096 EiB"),
    ],
)
def test_numbers_are_for_people(got: str, want: str) -> None:
    assert got == want


@pytest.mark.parametrize(
    "job",
    [
        "--ranks 8 --workers 1 --object-size 64KiB --samples-per-s 30000",
        "--ranks 1 --checkpoint-size 40TiB --checkpoint-every 1m --ranks-per-node 1",
        "--ranks 65536 --checkpoint-size 1EiB --write-limit 1 --object-size 1",
        LATE,
    ],
)
def test_no_number_is_printed_with_an_exponent(capsys: pytest.CaptureFixture[str], job: str) -> None:
    cli.main(["plan", *job.split()])
    out = capsys.readouterr().out
    assert not re.search(r"\de[+-]?\d", out), out
