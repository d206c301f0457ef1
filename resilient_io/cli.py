"""The command `resilient-io`. Each subcommand is a module with `SUMMARY`, `add_arguments(parser)` and `run(options)`.

Exit status: 0 done, 1 what the command checks does not hold, 2 the command cannot do what was asked,
130 interrupted.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from typing import Final

import resilient_io.mpu.command as mpu
import resilient_io.plan.command as plan
import resilient_io.rehearse.command as rehearse
from resilient_io import __version__

INTERRUPTED: Final = 130
COMMANDS: Final = {"rehearse": rehearse, "plan": plan, "mpu": mpu}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one subcommand and return its exit status; bad arguments leave by `SystemExit(2)`, as argparse does."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.command is None:
        parser.print_help(sys.stderr)
        return 2
    run: Callable[[argparse.Namespace], int] = COMMANDS[options.command].run
    try:
        return run(options)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of a pipe (`| head`) has left; the interpreter must not find it out again at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="resilient-io", description="Congestion control for object storage in training."
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    for name, module in COMMANDS.items():
        module.add_arguments(commands.add_parser(name, help=module.SUMMARY, description=module.SUMMARY))
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
