"""`dragoman build-engines`: new TensorRT engines for a bundle that is there already."""

from __future__ import annotations

import argparse
import typing
from pathlib import Path

HELP = "Rebuild a bundle's TensorRT engines for another release, GPU or size; takes seconds, on any machine."

_EPILOG = """\
examples:
  dragoman build-engines bundles/en-de
  dragoman build-engines bundles/en-de --compute-capability 8.9
  dragoman build-engines bundles/en-de --max-batch 256 --max-beam-size 8
  dragoman build-engines bundles/en-de --without-scores
  dragoman build-engines bundles/en-de --flavour tensorrt     (on the GPU that will run them: Hopper, B200)

Built from the bundle's portable graphs, which are not touched; no checkpoint and no GPU is needed. If the build fails, or
Ctrl-C or SIGTERM ends it, the bundle stays as it was."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    from dragoman.export.tensorrt.options import Flavour, ProfileLimits

    defaults = ProfileLimits()
    parser.epilog = _EPILOG
    add = parser.add_argument
    add("bundle", type=Path, metavar="BUNDLE", help="a bundle with portable graphs (--target tensorrt or cuda)")
    add(
        "--flavour",
        choices=typing.get_args(Flavour),
        help="tensorrt_rtx builds for many GPUs on any machine (the default); tensorrt, the standard package, builds for "
        "the GPU of this machine",
    )
    add(
        "--compute-capability",
        action="append",
        metavar="M.N",
        help="GPU generation, e.g. 8.6; may be given several times (default: all that can run the model's precision)",
    )
    add(
        "--max-batch",
        type=int,
        default=defaults.max_batch,
        metavar="ROWS",
        help="the largest --max-batch that a server may have (default: %(default)s)",
    )
    add(
        "--max-beam-size",
        type=int,
        default=defaults.max_beams,
        metavar="N",
        help="the largest --max-beam-size that a server may have (default: %(default)s)",
    )
    add(
        "--without-scores",
        action="store_true",
        help="leave out the engine for forced decoding, which holds the decoder's weights in the GPU's memory a second "
        "time; scores, alignments and the exact placement of markup need it",
    )


def run(arguments: argparse.Namespace) -> int:
    """Build and list the engines."""
    from rich.console import Console

    from dragoman.bundle.summary import engines_table
    from dragoman.export.progress import TerminalStages
    from dragoman.export.staging import interrupted_by_sigterm
    from dragoman.export.tensorrt import BuildOptions, ProfileLimits, parse_capabilities, rebuild_engines

    capabilities = parse_capabilities(arguments.compute_capability) if arguments.compute_capability else None
    limits = ProfileLimits(max_batch=arguments.max_batch, max_beams=arguments.max_beam_size)
    options = BuildOptions(arguments.flavour, capabilities, limits, scores=not arguments.without_scores)
    with interrupted_by_sigterm(), TerminalStages(Console(stderr=True)) as stages:
        manifest = rebuild_engines(arguments.bundle, options, stages)
    console = Console()
    console.print(engines_table(manifest))
    console.print(
        f"  serve it:  dragoman serve --bundle {arguments.bundle} --device tensorrt", highlight=False, soft_wrap=True
    )
    return 0
