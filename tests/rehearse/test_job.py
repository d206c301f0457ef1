from __future__ import annotations

from dataclasses import replace

from resilient_io.control.scopes import prefix_of
from resilient_io.rehearse.job import BURST_S, EPOCHS, Job

JOB = Job(ranks=3, threads=2, shards=100, shard_bytes=64, parts=4, ceiling_per_s=50.0, seed=7)


def test_each_epoch_reads_each_shard_once_whatever_the_ranks() -> None:
    for epoch in range(EPOCHS):
        read = [shard for rank in range(JOB.ranks) for shard in JOB.shards_of(epoch, rank)]
        assert sorted(read) == list(range(JOB.shards))


def test_the_order_follows_from_the_seed() -> None:
    assert JOB.shards_of(0, 1) == JOB.shards_of(0, 1)
    assert JOB.shards_of(0, 1) != JOB.shards_of(1, 1)
    assert JOB.shards_of(0, 1) != replace(JOB, seed=8).shards_of(0, 1)


def test_the_keys_of_a_class_stand_in_one_prefix() -> None:
    for root in ("", "resilient-io-rehearse-00/"):
        job = replace(JOB, root=root)
        assert len({prefix_of(job.shard_key(n), depth=2) for n in range(job.shards)}) == 1
        assert len({prefix_of(key, depth=2) for run in ("stock", "treated") for key in job.part_keys(run)}) == 1


def test_runs_write_keys_of_their_own() -> None:
    keys = JOB.part_keys("stock") + JOB.part_keys("treated")
    assert len(keys) == len(set(keys)) == 2 * EPOCHS * JOB.ranks * JOB.parts


def test_bodies_differ_by_key_and_not_by_root() -> None:
    moved = replace(JOB, root="elsewhere/")
    assert JOB.body(JOB.shard_key(1)) == moved.body(moved.shard_key(1))
    assert JOB.body(JOB.shard_key(1)) != JOB.body(JOB.shard_key(2))
    assert len(JOB.body(JOB.shard_key(1))) == JOB.shard_bytes


def test_the_ideal_is_what_the_ceilings_take() -> None:
    job = replace(JOB, shards=550, ranks=7, parts=50, ceiling_per_s=55.0)
    assert job.ideal_s == EPOCHS * ((10 - BURST_S) + (10 - BURST_S))
    assert replace(JOB, ceiling_per_s=None).ideal_s is None


def test_a_job_goes_through_plain_data() -> None:
    assert Job.from_dict(JOB.to_dict()) == JOB
