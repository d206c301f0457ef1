from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from resilient_io.rehearse import table
from resilient_io.rehearse.outcomes import Figures, Requests
from resilient_io.rehearse.rehearsal import STOCK, TREATED, Run


def run(name: str, **changes: Any) -> Run:
    values: Mapping[str, Any] = {
        "done": 1000,
        "failed": 0,
        "requests": Requests(sent=1020, refused=20),
        "p50_s": 0.25,
        "p99_s": 1.5,
        "makespan_s": 11.0,
        "ideal_s": 10.0,
        "checked_bytes": 65_536_000,
        "wrong_bytes": 0,
        "errors": {},
        **changes,
    }
    return Run(name=name, figures=Figures(**values), phases_s={})


STOCK_RUN = run(STOCK, done=997, failed=3, requests=Requests(sent=2700, refused=675), makespan_s=22.4)


def test_the_table_has_a_row_for_each_figure() -> None:
    rows = table.rows([STOCK_RUN, run(TREATED)])
    assert rows[0] == ["", "stock s3fs", "resilient-io"]
    assert ["operations failed", "3", "0"] in rows
    assert ["share of 503s", "25.0%", "2.0%"] in rows
    assert ["requests per operation", "2.70", "1.02"] in rows
    assert ["p50 of an operation", "250 ms", "250 ms"] in rows
    assert ["makespan over the ideal", "2.24 x (22.4 s)", "1.10 x (11.0 s)"] in rows


def test_without_a_ceiling_the_makespan_is_in_seconds() -> None:
    assert ["makespan over the ideal", "11.0 s"] in table.rows([run(TREATED, ideal_s=None)])


def test_the_plain_table_lines_up() -> None:
    lines = table.plain(table.rows([STOCK_RUN, run(TREATED)]), title="title").splitlines()
    assert lines[0] == "title"
    assert len({len(line) for line in lines[2:]}) == 1


@pytest.mark.parametrize("rich", [True, False])
def test_both_forms_show_the_figures(
    rich: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table, "find_spec", lambda name: object() if rich else None)
    table.show([STOCK_RUN, run(TREATED)], title="8 ranks")
    out = capsys.readouterr().out
    assert "8 ranks" in out
    assert "2.24 x (22.4 s)" in out


def test_a_good_run_is_told_in_two_sentences() -> None:
    first, second = table.meaning([STOCK_RUN, run(TREATED)])
    assert first == (
        "On the same store resilient-io lost no operation, had 2% of its requests refused and took 1.1 times "
        "as long as the ceiling alone takes; stock s3fs lost 3 of 1,000 operations, had 25% of its requests refused "
        "and took 2.2 times as long as the ceiling alone takes."
    )
    assert "import resilient_io; resilient_io.install()" in second
    assert "rs3://" in second


def test_a_bad_run_is_not_praised() -> None:
    bad = run(TREATED, failed=2, done=998, errors={"ThrottledError: x": 2})
    first, second = table.meaning([STOCK_RUN, bad])
    assert "did not do what it is for" in first
    assert "ThrottledError: x" in second
    assert not bad.is_good
    assert not run(TREATED, wrong_bytes=1).is_good


def test_stock_alone_has_its_sentence() -> None:
    first, _ = table.meaning([STOCK_RUN])
    assert first.startswith("On this store stock s3fs lost 3 of 1,000 operations")
