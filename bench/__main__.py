"""python -m bench COMMAND: each command is a file of this folder, with `arguments(parser)` and `main(args)`, the exit code."""
import argparse
import sys

from bench import compare, gpu, memory, report, run

COMMANDS = {"run": run, "report": report, "compare": compare, "memory": memory, "gpu": gpu}


def main(argv=None):
    parser = argparse.ArgumentParser(prog="python -m bench")
    commands = parser.add_subparsers(required=True)
    for name, module in COMMANDS.items():
        command = commands.add_parser(name, help=module.__doc__.splitlines()[0], description=module.__doc__)
        module.arguments(command)
        command.set_defaults(main=module.main)
    args = parser.parse_args(argv)
    return args.main(args)


if __name__ == "__main__":
    sys.exit(main())
