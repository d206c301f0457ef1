from __future__ import annotations

import json
import subprocess
import sys

import pytest

import resilient_io
from resilient_io import cli
from resilient_io.rehearse.outcomes import Outcome, Requests, figures
from resilient_io.rehearse.rehearsal import Run


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Return what the command says of arguments that it does not take."""
    with pytest.raises(SystemExit) as ended:
        cli.main(["rehearse", *arguments])
    assert ended.value.code == 2
    return capsys.readouterr().err


def cannot(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Return what the command says where it cannot do what was asked."""
    assert cli.main(["rehearse", *arguments]) == 2
    return capsys.readouterr().err


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"resilient-io {resilient_io.__version__}\n"


def test_without_a_command_it_says_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 2
    assert "rehearse" in capsys.readouterr().err


def test_an_unknown_command_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["rehears"])
    assert ended.value.code == 2
    assert "rehears" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--ranks", "0"], "--ranks: must be a whole number from 1 to 256"),
        (["--ranks", "two"], "--ranks: must be a whole number"),
        (["--threads", "-1"], "--threads"),
        (["--ceiling", "0"], "--ceiling: must be a number above 0"),
        (["--ceiling", "nan"], "--ceiling: must be a number above 0"),
        (["--ceiling", "inf"], "--ceiling: must be a number above 0"),
        (["--shards", "0"], "--shards"),
        (["--shard-size", "0"], "--shard-size: must be a size from 1 byte to 64MiB"),
        (["--shard-size", "65MiB"], "--shard-size: must be a size"),
        (["--shard-size", "4 parsecs"], "--shard-size: must be a size"),
        (["--seed", "x"], "--seed"),
        (["--only", "both"], "--only"),
        (["--store", "minio"], "--store"),
        (["--cloud", "gcs"], "--cloud"),
    ],
)
def test_a_bad_value_is_named(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert said in refused(capsys, *arguments)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--endpoint-url", "https://s3.example.com"], "--endpoint-url and --bucket go together"),
        (["--bucket", "mine"], "--endpoint-url and --bucket go together"),
        (["--endpoint-url", "s3.example.com", "--bucket", "mine"], "--endpoint-url must be a URL"),
        (["--endpoint-url", "https://x", "--bucket", "mine", "--store", "moto"], "--store names an embedded store"),
        (["--store", "azurite"], "--store azurite is not for s3: it has moto, builtin"),
        (["--endpoint-url", "https://x?sig=secret", "--bucket", "mine"], "credentials stand in the environment"),
        (["--cloud", "azure", "--store", "moto"], "--store moto is not for azure: it has azurite"),
        (["--cloud", "azure", "--endpoint-url", "acct", "--bucket", "c"], "https://ACCOUNT.blob.core.windows.net"),
    ],
)
def test_options_that_do_not_go_together(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert said in cannot(capsys, *arguments)


def test_the_kill_switch_is_pointed_out(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RESILIENT_IO", "0")
    assert "RESILIENT_IO=0" in cannot(capsys)


def test_a_bad_policy_in_the_environment_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RESILIENT_IO_MAX_ATTEMPTS", "many")
    assert "RESILIENT_IO_MAX_ATTEMPTS" in cannot(capsys)


def test_what_is_missing_is_named_with_the_cure(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("resilient_io.rehearse.command.find_spec", lambda name: None if name == "moto" else object())
    assert "moto not installed; pip install 'resilient-io[s3,cli,testing]'" in cannot(capsys)


def test_what_is_missing_for_azure_is_named_with_the_cure(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("resilient_io.rehearse.command.find_spec", lambda name: None)
    assert "adlfs not installed; pip install 'resilient-io[azure,cli]'" in cannot(capsys, "--cloud", "azure")


def test_ctrl_c_has_its_own_status(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*args: object, **kwargs: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("resilient_io.rehearse.command.rehearse", interrupted)
    monkeypatch.setattr("resilient_io.rehearse.s3_store.embedded_store", interrupted)
    assert cli.main(["rehearse"]) == cli.INTERRUPTED
    assert capsys.readouterr().err == "interrupted\n"


@pytest.mark.parametrize(("name", "status"), [("stock", 0), ("treated", 1)])
def test_only_a_failing_treated_run_is_a_failure(
    name: str, status: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    failing = figures(
        [Outcome(rank=0, kind="read", started_s=0.0, ended_s=1.0, error="OSError: no")],
        requests=Requests(sent=5, refused=5),
        makespan_s=1.0,
        ideal_s=1.0,
    )
    monkeypatch.setattr(
        "resilient_io.rehearse.command._rehearsed", lambda *_: [Run(name=name, figures=failing, phases_s={})]
    )
    assert cli.main(["rehearse", "--only", name]) == status
    assert "operations failed" in capsys.readouterr().out


def test_help_loads_no_sdk() -> None:
    code = (
        "import sys, json\nfrom resilient_io import cli\n"
        "try:\n    cli.main(['rehearse', '--help'])\nexcept SystemExit:\n    pass\n"
        "print(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(json.loads(done.stdout.splitlines()[-1]))
    assert "--endpoint-url" in done.stdout
    assert not loaded & {
        "botocore",
        "aiobotocore",
        "boto3",
        "s3fs",
        "fsspec",
        "moto",
        "rich",
        "aiohttp",
        "azure",
        "adlfs",
    }
