"""A line chart as SVG, by hand: the benchmarks need no plotting library."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

_WIDTH, _HEIGHT, _LEFT, _TOP, _BOTTOM = 720, 300, 60, 46, 44
_COLOURS = ("#c0392b", "#2471a3", "#1e8449", "#7d3c98", "#b9770e")


def lines(title: str, across: str, up: str, series: Mapping[str, Sequence[float]]) -> str:
    """Return a chart of series that have a value for each second."""
    longest = max(len(values) for values in series.values())
    top = max(max(values) for values in series.values()) or 1.0
    wide, high = _WIDTH - _LEFT - 16, _HEIGHT - _TOP - _BOTTOM

    def point(second: float, value: float) -> str:
        return f"{_LEFT + wide * second / max(1, longest - 1):.1f},{_TOP + high * (1 - value / top):.1f}"

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT}" font-family="sans-serif" '
        'font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="{_LEFT}" y="18" font-size="14">{escape(title)}</text>',
    ]
    for step in range(5):
        value = top * step / 4
        y = _TOP + high * (1 - step / 4)
        parts.append(f'<path d="M{_LEFT} {y:.1f}H{_WIDTH - 16}" stroke="#ddd"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{value:,.0f}</text>')
    for step in range(7):
        second = (longest - 1) * step / 6
        x = _LEFT + wide * step / 6
        parts.append(f'<text x="{x:.1f}" y="{_HEIGHT - 26}" text-anchor="middle">{second:.0f}</text>')
    parts.append(f'<text x="{_LEFT + wide / 2}" y="{_HEIGHT - 8}" text-anchor="middle">{escape(across)}</text>')
    parts.append(f'<text x="{_LEFT}" y="36" fill="#555">{escape(up)}</text>')
    for number, (name, values) in enumerate(series.items()):
        colour = _COLOURS[number % len(_COLOURS)]
        points = " ".join(point(second, value) for second, value in enumerate(values))
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.6"/>')
        y = _TOP + 14 + 16 * number
        parts.append(f'<text x="{_WIDTH - 22}" y="{y}" text-anchor="end" fill="{colour}">{escape(name)}</text>')
    return "\n".join((*parts, "</svg>\n"))
