from __future__ import annotations

import io

import pytest

from resilient_io.rehearse import progress


def test_lines_tell_begin_and_end_of_a_stage() -> None:
    out = io.StringIO()
    lines = progress.Lines(out)
    lines.begin("stock s3fs", 3)
    lines.step()
    lines.step(failed=True)
    lines.step()
    assert out.getvalue().splitlines() == ["stock s3fs: 3 to do", "stock s3fs: 3/3, 1 failed"]


def test_a_slow_stage_says_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "LINE_EACH_S", 0.0)
    out = io.StringIO()
    lines = progress.Lines(out)
    lines.begin("stage", 3)
    lines.step()
    assert "stage: 1/3" in out.getvalue()


def test_quiet_shows_only_notes(capsys: pytest.CaptureFixture[str]) -> None:
    with progress.shown(quiet=True) as shown:
        shown.begin("stage", 1)
        shown.step()
        shown.note("the machine is slow")
    assert capsys.readouterr() == ("", "note: the machine is slow\n")


def test_without_a_terminal_it_writes_lines(capsys: pytest.CaptureFixture[str]) -> None:
    with progress.shown(quiet=False) as shown:
        shown.begin("stage", 1)
        shown.note("the machine is slow")
    assert capsys.readouterr() == ("", "stage: 1 to do\nnote: the machine is slow\n")


def test_the_bar_counts_failures(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("rich")
    monkeypatch.setenv("COLUMNS", "120")
    with progress._rich() as bars:
        bar = progress.Bar(bars)
        bar.begin("stage", 2)
        bar.step(failed=True)
        bar.step()
        bar.note("the machine is slow")
    err = capsys.readouterr().err
    assert "2/2" in err
    assert "1 failed" in err
    assert "the machine is slow" in err
