"""The hub of a cluster: a Redis in which each node leaves what it has, and finds the sums of what the others have.

One script does both, for all levels of a node, in one round trip. Everything there is a lease: an entry that its node
does not renew within `LEASE_S` of Redis's clock no longer counts, and a key that nobody touches goes by itself. So
Redis may be flushed, restarted or replaced at any time. Keys hold a version and a digest, never a name of the user's.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import urllib.parse
from collections.abc import Mapping, Sequence
from typing import Any, Final

from resilient_io.control.fleet_split import LONG_AGO_S, SPLIT, Entry, Sums

# Bound on each wait for Redis: to connect, for the handshake of TLS, for the greeting, for the answer.
TIMEOUT_S: Final = 0.5
LEASE_S: Final = 5.0
_KEY_LIVES_S: Final = 60.0
# The braces put all keys into one slot, so that a script may name several.
_KEY: Final = "resilient-io:{limits-1}:"
# Levels in one call: more would keep Redis from its other users for milliseconds.
_LEVELS: Final = 64
_FIELDS: Final = 9

_SCRIPT: Final = (
    f"local RISE, RISE_BY = {SPLIT.rise - 1.0!r}, {SPLIT.rise_by!r}"
    + """
local node, lease_ms, lives_ms = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)

local function numbers(text)
  if #text > 256 then return nil end
  local found = {}
  for word in string.gmatch(text, '%S+') do
    local number = tonumber(word)
    if not number or not (number >= 0 and number < 1e15) then return nil end
    found[#found + 1] = number
  end
  return found
end

local replies = {}
for i, key in ipairs(KEYS) do
  local kind = redis.call('TYPE', key)['ok']
  if kind ~= 'none' and (kind ~= 'hash' or redis.call('HLEN', key) > 8192) then redis.call('DEL', key) end
  local at, mine = 3 + (i - 1) * 8, {}
  for field = 1, 8 do mine[field] = tonumber(ARGV[at + field]) end
  local rate, wanting, need, settled, gain = mine[1], mine[2], mine[3], mine[4], mine[8]

  local sums, refused_at, gone = {0, 0, 0, 0, 0, 0, 0}, -1, 0
  local all, pot, pot_at = redis.call('HGETALL', key), 0, 0
  for j = 1, #all, 2 do
    local one = numbers(all[j + 1])
    if all[j] == 'pot' then
      if one and #one == 2 and one[2] <= now then pot, pot_at = one[1], one[2] end
    elseif all[j] ~= node then
      if one and #one == 8 and one[1] > now and one[1] <= now + lease_ms then
        sums[1] = sums[1] + 1
        for field = 2, 7 do sums[field] = sums[field] + one[field] end
        refused_at = math.max(refused_at, one[8])
      else
        if one and #one == 8 and one[1] <= now then gone = gone + one[2] end
        redis.call('HDEL', key, all[j])
      end
    end
  end

  -- What a node had that is gone falls to the others; not where Redis itself was away, and so all seem to be gone.
  if now - pot_at > lease_ms / 2 then pot, gone = 0, 0 end
  pot = math.min(pot + gone, rate + sums[2])
  local given, all_wanting = 0, wanting + sums[3]
  if settled > 0 and sums[5] > 0 and all_wanting > 0 then
    local part = need
    if wanting > 0 then part = math.max(0, rate + sums[2] + pot - sums[4]) * wanting / all_wanting end
    given = math.min(pot, RISE * rate + RISE_BY, gain * (part - rate))
  end

  local own = {string.format('%.0f', now + lease_ms)}
  for field = 1, 6 do own[field + 1] = ARGV[at + field] end
  own[8] = string.format('%.0f', math.max(0, now - mine[7] * 1000))
  redis.call('HSET', key, node, table.concat(own, ' '), 'pot', string.format('%.17g %.0f', pot - given, now))
  redis.call('PEXPIRE', key, lives_ms)
  for field = 1, 7 do replies[#replies + 1] = string.format('%.17g', sums[field]) end
  replies[#replies + 1] = refused_at < 0 and '-1' or string.format('%.3f', math.max(0, now - refused_at) / 1000)
  replies[#replies + 1] = string.format('%.17g', given)
end
return replies
"""
)
_SHA: Final = hashlib.sha1(_SCRIPT.encode(), usedforsecurity=False).hexdigest()


class HubLost(Exception):
    """The hub did not do what it should; the text says why, and holds nothing of the URL and of the hub's answers."""


def load() -> None:
    """Import what talks to Redis, in the caller's thread: a fork while another one imports leaves half a module."""
    with contextlib.suppress(ImportError):  # the first exchange says so
        import redis.backoff
        import redis.exceptions
        import redis.retry  # noqa: F401


class Hub:
    """The connection of one process to the Redis of a URL. Not thread-safe; each wait is at most `TIMEOUT_S`."""

    def __init__(self, url: str) -> None:
        """Keep the URL; connect when first asked."""
        self._url = url
        self._client: Any = None

    def exchange(self, node: str, entries: Mapping[bytes, Entry]) -> dict[bytes, Sums]:
        """Leave the entries of a node, by the digest of their level, and return the sums of the others; or HubLost."""
        try:
            answers = self._ask(node, entries)
            return {digest: _sums(answer) for digest, answer in zip(entries, answers, strict=True)}
        except Exception as error:
            self.close()
            raise HubLost(_reason(error)) from None

    def greet(self) -> None:
        """Connect, and leave the script there, so that the first exchange is quick; or HubLost."""
        try:
            self._run([], ["", round(LEASE_S * 1000), round(_KEY_LIVES_S * 1000)])
        except Exception as error:
            self.close()
            raise HubLost(_reason(error)) from None

    @property
    def is_connected(self) -> bool:
        """Say whether there is a connection, as far as is known."""
        return self._client is not None

    def close(self) -> None:
        """Hang up; asking connects again."""
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def _ask(self, node: str, entries: Mapping[bytes, Entry]) -> list[Sequence[Any]]:
        levels, answers = list(entries.items()), []
        for start in range(0, len(levels), _LEVELS):
            some = levels[start : start + _LEVELS]
            keys = [_KEY + digest.hex() for digest, _ in some]
            numbers = [repr(float(number)) for _, entry in some for number in entry]
            found = self._run(keys, [node, round(LEASE_S * 1000), round(_KEY_LIVES_S * 1000), *numbers])
            if len(found) != len(some) * _FIELDS:
                raise ValueError("another script's answer")
            answers += [found[at : at + _FIELDS] for at in range(0, len(some) * _FIELDS, _FIELDS)]
        return answers

    def _run(self, keys: list[str], arguments: list[Any]) -> Any:
        from redis.exceptions import NoScriptError

        client = self._connected()
        try:
            return client.evalsha(_SHA, len(keys), *keys, *arguments)
        except NoScriptError:  # a Redis that was started, or flushed of its scripts, since
            return client.eval(_SCRIPT, len(keys), *keys, *arguments)

    def _connected(self) -> Any:
        if self._client is None:
            from redis import Redis
            from redis.backoff import NoBackoff
            from redis.retry import Retry

            self._client = Redis.from_url(
                self._url,
                socket_timeout=TIMEOUT_S,
                socket_connect_timeout=TIMEOUT_S,
                retry=Retry(NoBackoff(), 0),
                max_connections=1,
                protocol=2,
            )
        return self._client


def _sums(answer: Sequence[Any]) -> Sums:
    nodes, rate, wanting, need, settled, members, came, ago_s, given = (float(part) for part in answer)
    sums = (nodes, rate, wanting, need, settled, members, came)
    if not all(math.isfinite(part) and part >= 0.0 for part in sums) or not math.isfinite(ago_s + given):
        raise ValueError("no sums")
    return Sums(
        nodes=nodes,
        rate=rate,
        wanting=wanting,
        need=need,
        settled=settled,
        members=members,
        came=came,
        refused_ago_s=ago_s if ago_s >= 0.0 else LONG_AGO_S,
        given=given,
    )


def _reason(error: Exception) -> str:
    """Say what went wrong in words of our own: an error's text may hold the URL, or what somebody put into Redis."""
    from redis import exceptions

    match error:
        case exceptions.AuthenticationError() | exceptions.AuthorizationError():
            return "it does not accept the user or password"
        case exceptions.TimeoutError():
            return f"no answer within {TIMEOUT_S:g} s"
        case exceptions.ConnectionError():
            return "no connection"
        case exceptions.ResponseError():
            # redis-py has classes for some errors, without the code in their text.
            named = type(error) is not exceptions.ResponseError
            code = type(error).__name__ if named else str(error).partition(" ")[0]
            return "it answers with an error" + (f" ({code})" if named or (code.isalpha() and code.isupper()) else "")
        case ValueError() | TypeError() | AttributeError():
            return f"its URL or its answer makes no sense ({type(error).__name__})"
        case _:
            return type(error).__name__


def place_of(url: str) -> str:
    """Return where a Redis is, for a person: host, port and database, without user, password and options."""
    try:
        parts = urllib.parse.urlsplit(url)
        where = parts.hostname or "localhost"
        port = parts.port or 6379
    except ValueError:
        return "redis"
    if parts.scheme == "unix":
        return f"unix socket {parts.path}"
    return f"{where}:{port}{parts.path.rstrip('/')}"
