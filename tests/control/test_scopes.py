from __future__ import annotations

import copy
import pickle
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resilient_io.control.scopes import ScopePath, label, normal_endpoint, prefix_of, scope_path

KEYS = st.text(alphabet="ab/|.*é", max_size=20)


@pytest.mark.parametrize(
    ("key", "depth", "prefix"),
    [
        ("train/imagenet/0001.tar", 2, "train/imagenet"),
        ("train/imagenet/val/0001.tar", 2, "train/imagenet"),
        ("train/0001.tar", 2, "train"),
        ("a.txt", 2, ""),
        ("", 2, ""),
        ("train/imagenet/0001.tar", 1, "train"),
        ("train/imagenet/0001.tar", 0, ""),
        ("train/imagenet/0001.tar", 9, "train/imagenet"),
        ("/a//b", 2, "/a"),
        ("/a//b", 3, "/a/"),
        ("//b", 2, "/"),
        ("train/imag", 2, "train"),
        ("train/imagenet/", 2, "train/imagenet"),
    ],
)
def test_prefix_is_the_first_directory_segments_and_never_the_name(key: str, depth: int, prefix: str) -> None:
    assert prefix_of(key, depth=depth) == prefix


@given(key=KEYS, name=st.text(alphabet="ab.", max_size=5), depth=st.integers(0, 5))
def test_prefix_of_an_object_under_a_prefix_is_that_prefix(key: str, name: str, depth: int) -> None:
    prefix = prefix_of(key, depth=depth)
    assert prefix_of(f"{prefix}/{name}", depth=depth) == prefix
    assert key.startswith(prefix)
    assert prefix == "" or prefix.count("/") < depth


@given(key=KEYS, depth=st.integers(0, 4))
def test_a_shallower_prefix_contains_the_deeper_one(key: str, depth: int) -> None:
    assert prefix_of(key, depth=depth + 1).startswith(prefix_of(key, depth=depth))


def test_rule_that_is_a_pattern_replaces_the_depth_where_it_matches() -> None:
    rule = r"^(runs/[^/]+/rank)\d+/"
    assert prefix_of("runs/7/rank12/step.pt", depth=2, rule=rule) == "runs/7/rank"
    assert prefix_of("other/a/b.pt", depth=2, rule=rule) == "other/a"
    assert prefix_of("b/c/d", depth=1, rule="(x)?b/") == "b"


@pytest.mark.parametrize("rule", ["os.path:dirname", "os.path.dirname", "posixpath:dirname"])
def test_rule_that_names_a_function_replaces_the_depth(rule: str) -> None:
    assert prefix_of("a/b/c/d.tar", depth=1, rule=rule) == "a/b/c"


@pytest.mark.parametrize(
    ("rule", "says"),
    [
        ("(a)(b)", "exactly one"),
        ("(?:a)", "exactly one"),
        ("(a", "not a regular expression"),
        ("no rule", "neither"),
        ("dirname", "neither"),
        ("no_such_module_here:f", "cannot be imported"),
        ("os.path:nothing_here", "cannot be imported"),
        ("os.path:sep", "not a function"),
        ("os.path:isabs", "must return a str"),
        ("os.path:getsize", "failed on key 'k/k'"),
    ],
)
def test_rule_that_cannot_work_is_named_in_the_error(rule: str, says: str) -> None:
    with pytest.raises(ValueError, match="prefix_rule") as caught:
        prefix_of("k/k", depth=2, rule=rule)
    assert rule in str(caught.value)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("url", "normal"),
    [
        ("https://s3.eu-west-1.amazonaws.com", "https://s3.eu-west-1.amazonaws.com"),
        ("HTTPS://Host.Example:443/path?q=1#f", "https://host.example"),
        ("http://127.0.0.1:9000/", "http://127.0.0.1:9000"),
        ("http://host:80", "http://host"),
        ("https://host:80", "https://host:80"),
        ("https://user:secret@host/", "https://host"),
        ("host.example", "https://host.example"),
        ("http://[::1]:9000/x", "http://[::1]:9000"),
        ("https://[::1]", "https://[::1]"),
        ("http://host:port", "http://host:port"),
        ("http://[broken", "http://[broken"),
        ("", ""),
    ],
)
def test_endpoint_is_scheme_host_and_port_only(url: str, normal: str) -> None:
    assert normal_endpoint(url) == normal


@given(url=st.text(max_size=30))
def test_endpoint_of_any_text_is_found_and_stable(url: str) -> None:
    once = normal_endpoint(f"http://{url}")
    assert once.startswith("http://")
    assert normal_endpoint(once) == once or once.endswith(":80")


def test_levels_go_from_the_store_to_the_prefix_and_end_in_the_class() -> None:
    s3 = scope_path(endpoint="https://host", bucket="b", prefix="train/imagenet", op_class="read")
    assert s3.levels() == ("https://host|read", "https://host||b|read", "https://host||b|train/imagenet|read")
    azure = scope_path(endpoint="https://host", account="acct", bucket="c", prefix="p", op_class="write")
    assert azure.levels() == (
        "https://host|write",
        "https://host|acct|write",
        "https://host|acct|c|write",
        "https://host|acct|c|p|write",
    )
    assert s3.leaf == s3.levels()[-1]


def test_objects_at_the_root_are_a_level_below_their_bucket() -> None:
    root = scope_path(endpoint="https://host", bucket="b", op_class="read")
    deep = scope_path(endpoint="https://host", bucket="b", prefix="p", op_class="read")
    assert root.leaf not in deep.levels()
    assert root.levels()[-2] == deep.levels()[-2]


def test_what_concerns_the_whole_store_has_no_bucket_level() -> None:
    assert scope_path(endpoint="https://host", op_class="list").levels() == ("https://host|list",)


PARTS = st.text(alphabet="ab|/", max_size=4)
PLACES = st.tuples(PARTS, PARTS, PARTS, st.sampled_from(["read", "write"]))


@given(one=PLACES, other=PLACES)
def test_two_places_share_a_leaf_only_if_they_are_the_same(
    one: tuple[str, str, str, str], other: tuple[str, str, str, str]
) -> None:
    def leaf(place: tuple[str, str, str, str]) -> str:
        account, bucket, prefix, op_class = place
        return ScopePath(endpoint="h", account=account, bucket=bucket, prefix=prefix, op_class=op_class).leaf

    def seen(place: tuple[str, str, str, str]) -> tuple[str, ...]:
        # Without a bucket there is no prefix level.
        return place if place[1] else (place[0], "", "", place[3])

    assert (leaf(one) == leaf(other)) == (seen(one) == seen(other))


def test_classes_of_operation_share_no_level() -> None:
    read, write = (scope_path(endpoint="h", bucket="b", prefix="p", op_class=c) for c in ("read", "write"))
    assert not set(read.levels()) & set(write.levels())


def test_two_stores_with_one_bucket_name_share_no_level() -> None:
    one, other = (scope_path(endpoint=e, bucket="b", prefix="p", op_class="read") for e in ("http://a", "http://b"))
    assert not set(one.levels()) & set(other.levels())


def test_the_same_parts_give_the_same_object_and_spelling_does_not_matter() -> None:
    one = scope_path(endpoint="https://host", bucket="b", prefix="p", op_class="read")
    assert scope_path(endpoint="https://host", bucket="b", prefix="p", op_class="read") is one
    spelt = scope_path(endpoint="HTTPS://Host:443/", bucket="b", prefix="p", op_class="read")
    assert spelt == one
    assert hash(spelt) == hash(one)
    assert ScopePath(endpoint="https://host", bucket="b", prefix="p", op_class="read") == one


def test_label_names_a_level_for_people() -> None:
    s3 = scope_path(endpoint="https://host", bucket="bucket", prefix="train/imagenet", op_class="read")
    assert str(s3) == "s3://bucket/train/imagenet (read)"
    assert [label(level) for level in s3.levels()][:2] == ["https://host (read)", "s3://bucket (read)"]
    azure = scope_path(endpoint="https://host", account="acct", bucket="c", prefix="a|b", op_class="list")
    assert [label(level) for level in azure.levels()][1:] == [
        "https://host acct (list)",
        "abfs://c@acct (list)",
        "abfs://c@acct/a|b (list)",
    ]


def test_a_scope_path_survives_copies() -> None:
    path = scope_path(endpoint="https://host", bucket="b", prefix="p", op_class="read")
    for twin in (copy.copy(path), copy.deepcopy(path), pickle.loads(pickle.dumps(path))):
        assert twin == path
        assert twin.levels() == path.levels()


def test_a_pickled_scope_path_is_found_in_a_dict_of_another_process() -> None:
    path = scope_path(endpoint="https://host", bucket="b", prefix="p", op_class="read")
    code = (
        "import pickle, sys; from resilient_io.control.scopes import scope_path\n"
        "own = scope_path(endpoint='https://host', bucket='b', prefix='p', op_class='read')\n"
        f"sys.exit(pickle.loads({pickle.dumps(path)!r}) not in {{own: 1}})"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
