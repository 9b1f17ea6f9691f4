"""`dragoman inspect`: show a bundle to people or machines, and check that it is what was verified."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from rich.console import Console

from dragoman.bundle.integrity import check_files
from dragoman.bundle.manifest import read_manifest
from dragoman.bundle.summary import manifest_tables

HELP = "Show what a bundle holds and check its files against the hashes in its manifest."


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("bundle", type=Path, metavar="BUNDLE", help="a directory written by `dragoman export`")
    parser.add_argument("--json", action="store_true", help="print the manifest as JSON instead of tables")
    parser.add_argument("--no-check", action="store_true", help="do not hash the files (fast, but proves nothing)")
    parser.epilog = "example:\n  dragoman inspect bundles/tatoeba-en-de"


def run(arguments: argparse.Namespace) -> int:
    """Print the manifest; a bundle that fails its check is a BundleError, after which nothing is printed."""
    manifest = read_manifest(arguments.bundle)
    if not arguments.no_check:
        check_files(arguments.bundle, manifest)
    if arguments.json:
        print(json.dumps(json.loads(manifest.to_json()), indent=2, ensure_ascii=False))
        return 0
    console = Console()
    for table in manifest_tables(manifest):
        console.print(table)
    checked = "not checked" if arguments.no_check else "all match their SHA-256"
    console.print(f"{len(manifest.files)} files, {checked}")
    return 0
