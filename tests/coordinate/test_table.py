"""The table of a machine: whose it is, what it does not believe, and that no lock holds anybody up."""

from __future__ import annotations

import contextlib
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from resilient_io.control import law
from resilient_io.coordinate import slot as slots
from resilient_io.coordinate.folder import Unusable, directory
from resilient_io.coordinate.layout import ROWS, SLOTS
from resilient_io.coordinate.slot import Slot, is_sound
from resilient_io.coordinate.table import Table

NOW = 1000.0


def slot_of(table: Table, name: str = "a", now: float = NOW) -> Slot:
    """The slot of a name; there must be one."""
    found = table.slot(name, now)
    assert found is not None
    return found


def limited(rate_per_s: float = 25.0, now: float = NOW) -> list[float]:
    """The record of a limited level."""
    rec = law.fresh(now)
    law.on_send(rec, now, 0.5)
    law.on_refusal(rec, now, now, 0.5)
    rec[law.RATE] = rate_per_s
    return rec


def test_two_processes_see_one_record(folder: Path) -> None:
    """What one writes the other reads; other levels have other slots."""
    one, other = Table(folder), Table(folder)
    slot_of(one).write(limited())
    assert slot_of(other).is_limited()
    assert slot_of(other).read(NOW)[law.RATE] == 25.0
    assert not slot_of(other, "b").is_limited()


def test_the_file_and_its_folder_are_private(tmp_path: Path) -> None:
    """Nobody else may read or write what limits this user's jobs."""
    table = Table(tmp_path / "new" / "folder")
    assert stat.S_IMODE(table.path.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(table.path.stat().st_mode) == 0o600


def test_the_file_names_no_bucket(folder: Path) -> None:
    """Names are digests there."""
    table = Table(folder)
    slot_of(table, "https://host|secret-bucket|train|read")
    assert b"secret-bucket" not in table.path.read_bytes()


def open_to_others(folder: Path) -> None:
    folder.chmod(0o755)


def a_link(folder: Path) -> None:
    folder.rename(folder.parent / "elsewhere")
    folder.symlink_to(folder.parent / "elsewhere")


def a_file(folder: Path) -> None:
    folder.rmdir()
    folder.write_text("not a folder")


def a_link_instead_of_the_file(folder: Path) -> None:
    path = Table(folder).path
    path.rename(folder / "elsewhere")
    path.symlink_to(folder / "elsewhere")


@pytest.mark.parametrize("spoil", [open_to_others, a_link, a_file, a_link_instead_of_the_file])
def test_a_folder_that_others_could_have_made_is_not_used(folder: Path, spoil: object) -> None:
    """The reason says what is wrong."""
    assert callable(spoil)
    spoil(folder)
    with pytest.raises(Unusable, match=str(folder)):
        Table(folder)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_folder_is_not_used(folder: Path) -> None:
    """Where nothing can be written nothing can be shared."""
    folder.chmod(0o500)
    with pytest.raises(Unusable):
        Table(folder)


@pytest.mark.parametrize("content", [b"", b"x" * 100, b"RIOLIMIT" + bytes(4096)])
def test_a_file_that_is_no_table_is_made_anew(folder: Path, content: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """A crash while it was made, another version, or something else under its name; with a warning, but for nothing."""
    path = Table(folder).path
    path.write_bytes(content)
    caplog.clear()
    assert not slot_of(Table(folder)).is_limited()
    assert [record.levelname for record in caplog.records] == ["WARNING"] * bool(content)


def test_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """The variable names the folder; without it shared memory, or the place for temporary files, by user."""
    monkeypatch.setenv("RESILIENT_IO_COORD_DIR", "/somewhere")
    assert directory() == Path("/somewhere")
    monkeypatch.setenv("RESILIENT_IO_COORD_DIR", "limits")
    with pytest.raises(Unusable, match="whole path"):
        directory()
    monkeypatch.delenv("RESILIENT_IO_COORD_DIR")
    assert directory().name == f"resilient-io-{os.geteuid()}"


@pytest.mark.parametrize(
    ("index", "value"),
    [
        (law.LIMITED, 7.0),
        (law.RATE, float("nan")),
        (law.RATE, -1.0),
        (law.RATE, 0.0),
        (law.RATE, 1e300),
        (law.TOKENS_AT, NOW + 1e6),
        (law.TOKENS, float("inf")),
        (law.GOOD, float("nan")),
    ],
)
def test_a_record_that_makes_no_sense_is_not_believed(folder: Path, index: int, value: float) -> None:
    """It is read as a fresh one."""
    table = Table(folder)
    rec = limited()
    rec[index] = value
    slot_of(table).write(rec)
    assert not is_sound(rec, NOW)
    assert slot_of(table).read(NOW)[law.LIMITED] == 0.0


def test_a_limited_record_is_sound() -> None:
    """Or nothing would ever be shared."""
    assert is_sound(limited(), NOW)
    assert is_sound(law.fresh(NOW), NOW)


def test_a_full_table_gives_no_slot_and_takes_back_idle_ones(folder: Path) -> None:
    """Levels without a slot are this process's own; after five minutes without use their slots are free again."""
    table = Table(folder)
    for number in range(3 * SLOTS):
        slot = table.slot(str(number), NOW)
        if slot is not None:
            slot.claim_row(NOW)
            slot.show((NOW, *[0.0] * 6))
    assert table.slot("one more", NOW) is None
    assert table.slot("one more", NOW + slots.STALE_S + 1.0) is not None


def test_a_slot_that_became_another_level_s_is_noticed(folder: Path) -> None:
    """Its old holder must not step the other's record."""
    table = Table(folder)
    slot = slot_of(table)
    slot._map[slot._at : slot._at + 16] = b"another digest.."
    assert not slot.lock()
    assert slot._lock.take()


def test_rows_of_the_dead_are_used_again(folder: Path) -> None:
    """More processes come and go than there are rows."""
    for number in range(ROWS + 10):
        slot = slot_of(Table(folder), now=NOW + number * 10.0)
        slot.claim_row(NOW + number * 10.0)
        slot.show((NOW + number * 10.0, 1.0, *[0.0] * 5))
    late = slot_of(Table(folder), now=NOW + 5000.0)
    assert 1 <= len(late.rows()) <= 10


def test_a_row_that_another_process_took_is_not_written(folder: Path) -> None:
    """One that was idle for longer than its lease comes back: two must not be taken for one."""
    first, second = slot_of(Table(folder)), slot_of(Table(folder))
    first.claim_row(NOW)
    late = NOW + 100.0
    second.claim_row(late)
    first.show((late, *[0.0] * 6))
    first.claim_row(late)
    first.show((late, 5.0, *[0.0] * 5))
    second.show((late, 7.0, *[0.0] * 5))
    assert sorted(row[1] for row in slot_of(Table(folder)).rows()) == [5.0, 7.0]


def test_a_table_of_another_version_is_replaced_and_not_cut_short(folder: Path) -> None:
    """Its processes would be killed at their next look; they go on with what they have, and see the new one."""
    old = Table(folder)
    slot = slot_of(old)
    slot.write(limited())
    old.map[0:8] = b"OLDTABLE"
    new = Table(folder)
    assert not slot_of(new).is_limited()
    assert slot.is_limited()
    assert old.renew(NOW)
    assert not slot.is_mine()
    assert not slot.lock()
    slot_of(old).write(limited())
    assert slot_of(new).is_limited()
    assert [path.name for path in folder.iterdir()] == [new.path.name]


def test_a_table_that_was_removed_is_missed_once_a_second(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    table = Table(folder)
    assert not table.renew(NOW)
    table.path.unlink()
    assert not table.renew(NOW + 0.5)
    assert table.renew(NOW + 1.5)
    table.path.unlink()
    folder.chmod(0o755)
    assert not table.renew(NOW + 3.0)
    folder.chmod(0o700)
    assert table.renew(NOW + 4.5)
    assert len([record for record in caplog.records if record.levelname == "WARNING"]) == 1


HOLD = """
import sys
from pathlib import Path
from resilient_io.coordinate.table import Table
table = Table(Path(sys.argv[1]))
slot = table.slot("a", 1000.0)
assert slot.lock()
print("held", flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def holder(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that holds the lock of the slot "a"."""
    command = [sys.executable, "-c", HOLD, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        try:
            yield process
        finally:
            process.kill()


def test_a_stopped_holder_of_the_lock_blocks_nobody(folder: Path) -> None:
    """The lock is tried for, and given up."""
    slot = slot_of(Table(folder))
    with holder(folder) as process:
        process.send_signal(signal.SIGSTOP)
        assert not slot.lock()
        slot.unlock()
        process.send_signal(signal.SIGCONT)


def test_the_lock_of_a_killed_process_is_free(folder: Path) -> None:
    """The kernel drops it."""
    slot = slot_of(Table(folder))
    with holder(folder) as process:
        process.kill()
        process.wait()
        assert slot.lock()


def test_a_lock_taken_twice_by_one_process_is_given_back_once(folder: Path) -> None:
    """An interrupt may have kept it from giving the lock back; the next step does."""
    one, other = slot_of(Table(folder)), slot_of(Table(folder))
    assert one.lock()
    assert not other.lock()
    assert one.lock()
    one.unlock()
    assert other.lock()
