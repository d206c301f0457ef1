"""What `resilient-io plan` says: right by hand, right by the simulation at full size, and clear where it cannot."""

from __future__ import annotations

import json
import math
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from resilient_io import cli
from resilient_io.simulate import Fleet, Order, Service, Store, run, run_together

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "plan.md"
EXAMPLES = re.findall(r"^\$ resilient-io (plan .*)\n((?:.*\n)*?)^```", PAGE.read_text("utf-8"), re.MULTILINE)


SIMULATED = re.compile(
    r"about [\d.]+%|takes [\d.]+ \w+, [\d.]+ \w+ of it stall(, [\d.]+% of the time)?|, [\d.]+ (s|min)$", re.MULTILINE
)


def without_simulated(text: str) -> str:
    return SIMULATED.sub("...", text.strip())


def plan(capsys: pytest.CaptureFixture[str], text: str) -> dict[str, Any]:
    """Return what the command prints as JSON."""
    cli.main(["plan", *text.split(), "--json"])
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def said(capsys: pytest.CaptureFixture[str], text: str, status: int) -> str:
    assert cli.main(["plan", *text.split()]) == status
    return capsys.readouterr().out


def advice(found: dict[str, Any], about: str) -> dict[str, Any]:
    return {one["text"]: one["after"] for one in found["advice"] if one["about"] == about}


# ---- by hand ---------------------------------------------------------------------------------------------------------


def test_what_a_rank_consumes_makes_the_requests(capsys: pytest.CaptureFixture[str]) -> None:
    """512 ranks x 100 samples/s, two in each object of 4 MiB: 25,600 reads/s, 4.65 times what a prefix serves."""
    found = plan(capsys, "--ranks 512 --object-size 4MiB --samples-per-s 100 --samples-per-object 2")
    reads = found["forecasts"][0]
    assert reads["requests_per_s"] == pytest.approx(25_600)
    assert reads["uses"][0]["share"] == pytest.approx(25_600 / 5500)
    assert reads["stall_share"] == pytest.approx(1 - 5500 / 25_600)
    assert reads["bytes_per_s"] == pytest.approx(25_600 * 4 * 2**20)


def test_without_a_rate_the_workers_read_as_quickly_as_they_can(capsys: pytest.CaptureFixture[str]) -> None:
    """64 MiB are two requests of 32 MiB in the mean: 25 ms and 32 MiB at 85 MB/s each."""
    reads = plan(capsys, "--ranks 64 --workers 4")["forecasts"][0]
    assert reads["requests_per_s"] == pytest.approx(64 * 4 / (0.025 + 32 * 2**20 / 85e6))


@pytest.mark.parametrize(("layout", "prefixes"), [("one", 1), ("date", 1), ("rank", 64), ("16", 16), ("object", 1)])
def test_a_layout_spreads_the_load(capsys: pytest.CaptureFixture[str], layout: str, prefixes: int) -> None:
    reads = plan(capsys, f"--ranks 64 --layout {layout}")["forecasts"][0]
    assert reads["prefixes"] == prefixes
    assert reads["per_prefix_per_s"] == pytest.approx(reads["requests_per_s"] / prefixes)


def test_the_requests_of_a_checkpoint(capsys: pytest.CaptureFixture[str]) -> None:
    """64 files of 1 GiB in parts of 50 MiB: 21 parts, begun and completed; ten at a time are three rounds."""
    found = plan(capsys, "--ranks 64 --checkpoint-size 64GiB")["forecasts"][1]
    part_s = 0.025 + 2**30 / 21 / 85e6
    assert found["took_s"] == pytest.approx(3 * part_s)
    assert found["requests_per_s"] == pytest.approx(64 * 23 / (3 * part_s))
    assert found["stall_s"] == 0.0


def test_small_files_are_one_request_each(capsys: pytest.CaptureFixture[str]) -> None:
    found = plan(capsys, "--ranks 8 --checkpoint-size 8MiB --files-per-writer 4")["forecasts"][1]
    assert found["requests_per_s"] * found["took_s"] == pytest.approx(8 * 4)


def test_azure_counts_by_account_and_bytes(capsys: pytest.CaptureFixture[str]) -> None:
    """256 MiB are 32 MiB at once and 56 requests of 4 MiB; 50 Gbit/s out is the tightest limit."""
    reads = plan(capsys, "--ranks 64 --cloud azure --object-size 256MiB --samples-per-s 2 --workers 16 --layout rank")[
        "forecasts"
    ][0]
    assert reads["requests_per_s"] == pytest.approx(64 * 2 * 57)
    shares = {use["kind"]: use["share"] for use in reads["uses"]}
    assert shares["account"] == pytest.approx(64 * 2 * 57 / 20_000)
    assert shares["bandwidth"] == pytest.approx(64 * 2 * 256 * 2**20 * 8 / 50e9)
    assert "object" not in shares


def test_one_blob_for_all_meets_its_own_limit(capsys: pytest.CaptureFixture[str]) -> None:
    found = plan(capsys, "--ranks 256 --cloud azure --layout object --object-size 1MiB --samples-per-s 5")
    assert found["forecasts"][0]["uses"][0]["kind"] == "object"
    assert found["forecasts"][0]["uses"][0]["share"] == pytest.approx(256 * 5 / 500)
    assert any("copies" in text for text in advice(found, "reads"))
    assert any("broadcast" in text for text in advice(found, "reads"))


def test_larger_limits_can_be_told(capsys: pytest.CaptureFixture[str]) -> None:
    ranks = "--ranks 512 --object-size 4MiB --samples-per-s 50"
    assert plan(capsys, f"{ranks} --read-limit 51200")["forecasts"][0]["uses"][0]["share"] == pytest.approx(0.5)
    azure = f"{ranks} --cloud azure --account large --account-limit 100000"
    uses = {use["kind"]: use for use in plan(capsys, azure)["forecasts"][0]["uses"]}
    assert uses["account"]["most_per_s"] == 100_000
    assert uses["bandwidth"]["most_per_s"] == pytest.approx(200e9 / 8 / (4 * 2**20))


# ---- advice ----------------------------------------------------------------------------------------------------------


def test_advice_brings_what_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    """Spread over the prefixes that were proposed, and with the shards that were: both are below the limit then."""
    job = "--ranks 512 --samples-per-s 100"
    found = advice(plan(capsys, f"{job} --object-size 4MiB --samples-per-object 2"), "reads")
    spread = next(after for text, after in found.items() if text.startswith("spread the keys over 6 prefixes"))
    again = plan(capsys, f"{job} --object-size 4MiB --samples-per-object 2 --layout 6")["forecasts"][0]
    assert again == spread
    assert again["uses"][0]["share"] < 0.8
    assert again["stall_share"] == again["refused_share"] == 0.0
    shard = next(after for text, after in found.items() if text.startswith("shard: 8 objects in one, of 32 MiB"))
    assert plan(capsys, f"{job} --object-size 32MiB --samples-per-object 16")["forecasts"][0] == shard


def test_advice_for_a_checkpoint(capsys: pytest.CaptureFixture[str]) -> None:
    """10,000 parts on one prefix at once: spread, larger parts; not fewer writers where that takes longer."""
    found = plan(capsys, "--ranks 512 --checkpoint-size 1TiB --checkpoint-layout date --layout rank")
    texts = advice(found, "checkpoint")
    assert any(text.startswith("spread the files over 3 prefixes") for text in texts)
    assert any(text.startswith("write parts of 200 MiB") for text in texts)
    assert any("never split" in text for text in texts)
    before = found["forecasts"][1]["took_s"]
    assert all(after is None or after["took_s"] < before for after in texts.values())


def test_too_few_workers_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    found = plan(capsys, "--ranks 8 --workers 1 --object-size 64KiB --samples-per-s 100")
    assert "take at least 3 workers" in " ".join(advice(found, "reads"))


def test_azure_advice_names_accounts_and_premium(capsys: pytest.CaptureFixture[str]) -> None:
    found = plan(capsys, "--ranks 1024 --cloud azure --object-size 64KiB --samples-per-s 40")
    texts = advice(found, "reads")
    assert any("3 accounts" in text for text in texts)
    assert any("--account large" in text for text in texts)
    assert any("premium" in text for text in texts)
    assert any(text.startswith("shard") for text in texts)


def test_nothing_to_change(capsys: pytest.CaptureFixture[str]) -> None:
    out = said(capsys, "--ranks 8 --layout rank", 0)
    assert "no stall" in out
    assert out.endswith("Nothing to change.\n")


def test_the_status_tells_that_something_is_above_its_limit(capsys: pytest.CaptureFixture[str]) -> None:
    out = said(capsys, "--ranks 512 --object-size 4MiB --samples-per-s 100", 1)
    assert "stall:" in out
    assert "- reads: spread the keys" in out


# ---- against the simulation ------------------------------------------------------------------------------------------


def test_reads_are_what_the_simulation_gives_at_full_size(capsys: pytest.CaptureFixture[str]) -> None:
    """64 ranks in eight machines at 1.4 times what a prefix serves, with a prefix ten times as narrow as S3's."""
    job = "--ranks 64 --workers 2 --object-size 1MiB --samples-per-s 12 --read-limit 550"
    reads = plan(capsys, job)["forecasts"][0]
    assert reads["uses"][0]["share"] == pytest.approx(64 * 12 / 550)
    read_s = 0.025 + 2**20 / 85e6
    fleet = Fleet(processes=64, callers=2, sharing=8, share=1 / 8, pause_s=2 / 12 - read_s)
    store = Store(ceiling_per_s=550, latency_median_s=read_s, latency_sigma=0.3)
    full = run(fleet, store, seconds=60, warm_s=30, seed=7)
    assert full.per_s / (64 * 12) == pytest.approx(1 - reads["stall_share"], rel=0.05)
    assert full.refused_share == pytest.approx(reads["refused_share"], abs=0.01)


def test_a_checkpoint_takes_what_the_simulation_gives_at_full_size(capsys: pytest.CaptureFixture[str]) -> None:
    """256 ranks in 32 machines; the plan's run has eight of them."""
    job = "--ranks 256 --checkpoint-size 256GiB --files-per-writer 20 --write-limit 350"
    found = plan(capsys, job)["forecasts"][1]
    part_s = 0.025 + 2**30 / 20 / 85e6 / 2
    files = 256 * 20 * 4  # 51.2 MiB: two parts, begun and completed
    assert found["requests_per_s"] * (found["took_s"] - found["stall_s"]) == pytest.approx(files)
    fleet = Fleet(processes=256, callers=10, sharing=8, share=1 / 32, operations=80)
    store = Store(ceiling_per_s=350, latency_median_s=part_s, latency_sigma=0.3)
    full = run(fleet, store, seconds=300, seed=7)
    assert full.finished_at_s == pytest.approx(found["took_s"], rel=0.1)
    assert full.refused_share_all == pytest.approx(found["refused_share"], abs=0.02)


def test_spreading_is_what_the_simulation_gives(capsys: pytest.CaptureFixture[str]) -> None:
    """The same load on one prefix and on four: what is above the limit of one is served by four without a refusal."""
    job = "--ranks 16 --workers 4 --object-size 1KiB --samples-per-s 30 --read-limit 200"
    assert plan(capsys, job)["forecasts"][0]["stall_share"] == pytest.approx(1 - 200 / 480)
    assert plan(capsys, f"{job} --layout 4")["forecasts"][0]["stall_share"] == 0.0
    fleet = Fleet(processes=16, callers=4, prefixes=range(4), order=Order.RANDOM, pause_s=4 / 30 - 0.025)
    service = Service(prefix=Store(ceiling_per_s=200, latency_median_s=0.025, latency_sigma=0.3))
    result = run_together([fleet], service, seconds=30, warm_s=5)[0]
    assert result.per_s == pytest.approx(480, rel=0.05)
    assert result.refused_all == 0


def test_the_run_in_small_is_quick_and_finite(capsys: pytest.CaptureFixture[str]) -> None:
    """The largest job there is; no figure is missing."""
    found = plan(capsys, "--ranks 65536 --workers 32 --object-size 1MiB --checkpoint-size 100TiB --checkpoint-every 1h")
    for one in found["forecasts"]:
        assert all(math.isfinite(value) for value in one.values() if isinstance(value, float))
        assert one["refused_share"] < 0.6


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example[0][:40])
def test_the_examples_of_the_docs_are_what_it_prints(
    capsys: pytest.CaptureFixture[str], example: tuple[str, str]
) -> None:
    """But for what the run of the simulation gives: that moves a little with the law."""
    cli.main(shlex.split(example[0]))
    assert without_simulated(capsys.readouterr().out) == without_simulated(example[1])


# ---- errors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "--ranks"),
        ("--ranks 0", "--ranks: must be a whole number from 1 to 1,000,000"),
        ("--ranks 8 --layout many", "--layout: must be one, rank, date, object or a number of prefixes, not 'many'"),
        ("--ranks 8 --layout 0", "--layout: must be one, rank"),
        ("--ranks 8 --object-size 4parsecs", "--object-size: must be a size from 1 byte to 190.7TiB, such as 64KiB"),
        ("--ranks 8 --samples-per-s nan", "--samples-per-s: must be a number above 0"),
        ("--ranks 8 --checkpoint-every soon", "--checkpoint-every: must be a time above 0, such as 90s, 30m or 2h"),
        ("--ranks 8 --cloud gcs", "--cloud"),
    ],
)
def test_arguments_that_cannot_be_read(capsys: pytest.CaptureFixture[str], text: str, said: str) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["plan", *text.split()])
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("--samples-per-object 4", "--samples-per-object says nothing without --samples-per-s"),
        ("--checkpoint-every 30m", "--checkpoint-every needs --checkpoint-size"),
        ("--part-size 1MiB", "--part-size needs --checkpoint-size"),
        ("--checkpoint-size 1GiB --writers 9", "--writers 9 is more than the 8 ranks"),
        ("--checkpoint-size 1GiB --checkpoint-layout object", "--checkpoint-layout object"),
        ("--account large", "--account and --account-limit are for --cloud azure"),
        ("--cloud azure --read-limit 100", "--read-limit and --write-limit are for --cloud s3"),
    ],
)
def test_arguments_that_do_not_go_together(capsys: pytest.CaptureFixture[str], text: str, said: str) -> None:
    assert cli.main(["plan", "--ranks", "8", *text.split()]) == 2
    assert said in capsys.readouterr().err
