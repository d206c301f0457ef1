"""How long to wait before the next attempt."""

from __future__ import annotations

# 2.0 ** 1024 overflows a float; no base_s that a policy allows needs more doublings than this.
_MOST_DOUBLINGS = 64


def full_jitter(attempt: int, *, base_s: float, cap_s: float, u: float) -> float:
    """Return a delay in seconds, uniform in [0, min(cap_s, base_s * 2**(attempt - 1))).

    `attempt` is the 1-based number of the attempt that failed; `u` is a uniform drawn in [0, 1).
    Full jitter spreads callers that failed at the same moment over the whole interval, which costs
    the service less than exponential backoff with a small jitter (AWS Architecture Blog,
    "Exponential Backoff And Jitter").
    """
    doublings = min(max(attempt - 1, 0), _MOST_DOUBLINGS)
    return u * min(cap_s, base_s * 2.0**doublings)


def delay_s(
    attempt: int,
    *,
    base_s: float,
    cap_s: float,
    u: float,
    floor_s: float | None = None,
    floor_clamp_s: float | None = None,
) -> float:
    """Return the jittered delay in seconds, never below `min(floor_s, floor_clamp_s)`.

    `floor_s` is what the service asked for (Retry-After); None or a negative value is no floor.
    `floor_clamp_s` bounds how much of it is believed, by default `cap_s`: a service that asks for
    an hour gets the longest pause that the policy knows, again and again, until the deadline.
    """
    jitter_s = full_jitter(attempt, base_s=base_s, cap_s=cap_s, u=u)
    if floor_s is None:
        return jitter_s
    clamp_s = cap_s if floor_clamp_s is None else floor_clamp_s
    return max(jitter_s, min(floor_s, clamp_s))
