"""Which pace a level gets: one that the processes of this machine share, or one of this process's own."""

from __future__ import annotations

import logging
from typing import Protocol

from resilient_io.control.law import SHARE, Record
from resilient_io.coordinate.cluster import ClusterLink
from resilient_io.coordinate.fleet import Job, job_of, share_of
from resilient_io.coordinate.folder import Unusable, directory
from resilient_io.coordinate.node import NodePace
from resilient_io.coordinate.pace import Pace, ProcessPace
from resilient_io.coordinate.places import NodePlaces, OwnPlaces, Places
from resilient_io.coordinate.table import Table
from resilient_io.policy import Policy

_log = logging.getLogger("resilient_io")


class Sharing(Protocol):
    """Gives each level its pace."""

    def pace(self, rec: Record, name: str, policy: Policy, now: float) -> Pace:
        """Return what steps the record of the level of this name."""

    def expect(self, policy: Policy) -> None:
        """Levels of this policy will be wanted soon: get ready what takes time. Waits for nothing."""

    def widen(self, pace: Pace, policy: Policy) -> None:
        """A level that is in use already meets a policy that may share it with more."""

    def places(self, name: str, policy: Policy) -> Places:
        """Return the places in flight of the scope of this name, for a policy with `max_concurrency_node`."""

    def share(self, policy: Policy) -> float:
        """Return the part of the fleet that this process is, above 0 to 1; 0.0 where it is not known."""


class ProcessSharing:
    """No sharing: each process limits itself."""

    def pace(self, rec: Record, name: str, policy: Policy, now: float) -> Pace:
        """Return a pace of this process's own."""
        return _alone(rec, policy, job_of())

    def expect(self, policy: Policy) -> None:
        """Do nothing: see the class."""

    def widen(self, pace: Pace, policy: Policy) -> None:
        """Do nothing: see the class."""

    def places(self, name: str, policy: Policy) -> Places:
        """Return places of this process's own."""
        return OwnPlaces()

    def share(self, policy: Policy) -> float:
        """See Sharing."""
        return share_of(job_of(), policy.fleet_size, 1, shared=False)


def _alone(rec: Record, policy: Policy, job: Job) -> Pace:
    rec[SHARE] = share_of(job, policy.fleet_size, 1, shared=False)
    return ProcessPace(rec)


class NodeSharing:
    """Sharing between the processes of this machine, and with other machines where the policy says "cluster".

    With "process" there is none. The table is mapped at the first level that wants it. Where it cannot be had, that
    is logged once, and this process limits itself. Not thread-safe: the gate's lock guards it.
    """

    __slots__ = ("_job", "_links", "_table", "_told", "_tried")

    def __init__(self) -> None:
        self._job = job_of()
        self._links: dict[str, ClusterLink] = {}
        self._table: Table | None = None
        self._tried = self._told = False

    def pace(self, rec: Record, name: str, policy: Policy, now: float) -> Pace:
        """Return a shared pace where that is wanted and possible."""
        if policy.coordination == "process":
            return _alone(rec, policy, self._job)
        table = self._opened(wanted=policy.coordination is not None)
        if table is None:
            return _alone(rec, policy, self._job)
        return NodePace(rec, table, name, now, self._job, policy.fleet_size, self._link(policy))

    def expect(self, policy: Policy) -> None:
        """Let the exchange connect, if the policy says "cluster"."""
        link = self._link(policy)
        if link is not None:
            link.wake()

    def widen(self, pace: Pace, policy: Policy) -> None:
        """Share the level across the cluster from now on, if the policy says so."""
        link = self._link(policy)
        if link is not None and isinstance(pace, NodePace):
            pace.share_further(link)

    def places(self, name: str, policy: Policy) -> Places:
        """Return places of all processes of this machine; without a table, or with "process", of this one alone."""
        table = None if policy.coordination == "process" else self._opened(wanted=policy.coordination is not None)
        if table is not None:
            return NodePlaces(table, name)
        level = logging.DEBUG if self._told else logging.WARNING
        self._told = True
        _log.log(level, "max_concurrency_node counts this process alone: it shares no table with others")
        return OwnPlaces()

    def share(self, policy: Policy) -> float:
        """See Sharing."""
        return share_of(self._job, policy.fleet_size, 1, shared=False)

    def _link(self, policy: Policy) -> ClusterLink | None:
        url = policy.redis_url
        if policy.coordination != "cluster" or url is None:
            return None
        if url not in self._links:
            self._links[url] = ClusterLink(url)
        return self._links[url]

    def _opened(self, *, wanted: bool) -> Table | None:
        if not self._tried:
            self._tried = True
            try:
                self._table = Table(directory())
            except Unusable as error:
                level = logging.WARNING if wanted else logging.INFO
                _log.log(level, "limits are not shared with other processes: %s", error)
        return self._table
