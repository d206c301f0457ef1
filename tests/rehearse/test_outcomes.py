from __future__ import annotations

import pytest

from resilient_io.rehearse.outcomes import Checked, Outcome, Requests, figures, jain, percentile, wrong_bytes


def outcome(latency_s: float, *, error: str = "", wrong: int = 0) -> Outcome:
    return Outcome(
        rank=0, kind="read", started_s=1.0, ended_s=1.0 + latency_s, error=error, checked_bytes=10, wrong_bytes=wrong
    )


def test_the_figures_count_all() -> None:
    made = figures(
        [outcome(0.1), outcome(0.3, wrong=4), outcome(0.2, error="OSError: no")],
        requests=Requests(sent=6, refused=3),
        makespan_s=3.0,
        ideal_s=2.0,
        written=Checked(bytes=5, wrong_bytes=1),
    )
    assert (made.done, made.failed, made.operations) == (2, 1, 3)
    assert made.requests_per_operation == 2.0
    assert made.requests.refused_share == 0.5
    assert made.over_ideal == 1.5
    assert (made.checked_bytes, made.wrong_bytes) == (35, 5)
    assert (round(made.p50_s, 6), round(made.p99_s, 6)) == (0.2, 0.3)
    assert made.errors == {"OSError: no": 1}


def test_the_figures_of_nothing() -> None:
    made = figures([], requests=Requests(sent=0, refused=0), makespan_s=0.0, ideal_s=None)
    assert (made.requests_per_operation, made.requests.refused_share, made.p99_s) == (0.0, 0.0, 0.0)
    assert made.over_ideal is None


def test_percentile_is_the_nearest_rank() -> None:
    values = [float(n) for n in range(1, 101)]
    assert [percentile(values, share) for share in (0.0, 0.5, 0.99, 1.0)] == [1.0, 50.0, 99.0, 100.0]


@pytest.mark.parametrize(("values", "index"), [([1, 1, 1, 1], 1.0), ([1, 0, 0, 0], 0.25), ([0, 0], 1.0), ([], 1.0)])
def test_jain(values: list[float], index: float) -> None:
    assert jain(values) == pytest.approx(index)


@pytest.mark.parametrize(
    ("got", "wanted", "wrong"), [(b"abc", b"abc", 0), (b"abd", b"abc", 1), (b"ab", b"abc", 1), (b"xbcd", b"abc", 2)]
)
def test_wrong_bytes(got: bytes, wanted: bytes, wrong: int) -> None:
    assert wrong_bytes(got, wanted) == wrong
