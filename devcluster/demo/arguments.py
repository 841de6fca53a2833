"""The arguments of `./run demo`, by the standard library alone: `--help` needs nothing installed."""

import argparse

RUNTIMES = ("containerd", "small")


def parser() -> argparse.ArgumentParser:
    """Return the parser of the demo's command line."""
    parser = argparse.ArgumentParser(
        prog="./run demo", description="A cluster on this machine, pods with exact VFs, every promise checked."
    )
    parser.add_argument(
        "--keep", action="store_true", help="leave the cluster up until Ctrl-C and print its kubeconfig"
    )
    parser.add_argument(
        "--assess",
        action="store_true",
        help="instead: a cluster without Mooring, with a fault of each kind; `kubectl mooring assess` finds them",
    )
    parser.add_argument("--html", default="", metavar="FILE", help="with --assess: write its report as a page, too")
    parser.add_argument("--runtime", choices=RUNTIMES, help="container runtime (default: containerd where it can run)")
    return parser


if __name__ == "__main__":
    parser().parse_args()
