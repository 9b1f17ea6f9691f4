"""`dragoman export`: one command from a trained checkpoint to a verified bundle."""

from __future__ import annotations

import argparse
import typing
from pathlib import Path

from dragoman.bundle.manifest import Precision, Segmentation, Target

HELP = "Turn a trained checkpoint into a bundle: ONNX graphs checked token for token against the original model."

_EPILOG = """\
targets:
  cpu        custom operators, for ONNX Runtime on the CPU (the default)
  cuda       standard operators, for ONNX Runtime on a GPU
  tensorrt   as cuda, and TensorRT engines are built from them (on any machine, no GPU needed)

examples:
  dragoman export models/tatoeba-en-de --output bundles/en-de
  dragoman export translate-zh_en-1_9.argosmodel --output bundles/zh-en --precision int8
  dragoman export opus-mt-en-fr --output bundles/en-fr --precision int8 --verify-file dev.tsv
  dragoman export opus-mt-en-fr --output bundles/en-fr --precision int8 --verify-file dev.tsv --shortlist news.fr
  dragoman export nllb-200-distilled-600M --output bundles/nllb --precision int8 --shortlist de=news.de --shortlist fr=t.fr
  dragoman export opus-mt-en-fr --output bundles/en-fr-gpu --precision fp16 --target tensorrt --compute-capability 8.6
  dragoman export flan-t5-base --output bundles/flan-gpu --precision bf16 --target tensorrt
  dragoman export fairseq/checkpoint_best.pt --output bundles/en-fr --dictionaries data-bin --bpe-codes bpe.codes

The bundle is written completely or not at all: nothing is left if the verification fails, or if Ctrl-C or SIGTERM ends the
export.

exit codes: 0 success, 1 the export or its verification failed, 2 wrong usage, 130 interrupted"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.epilog = _EPILOG
    add = parser.add_argument
    add("checkpoint", type=Path, metavar="SOURCE", help="the trained model: a directory or a file (docs/export.md)")
    add("--output", type=Path, required=True, metavar="BUNDLE", help="the directory to write")
    add("--force", action="store_true", help="replace an existing bundle")
    add("--json", action="store_true", help="print the manifest as JSON instead of tables")
    _declare_graphs(parser.add_argument_group("graphs"))
    _declare_model(parser.add_argument_group("model"))
    _declare_check(parser.add_argument_group("verification"))
    _declare_source(parser.add_argument_group("source format"))


def _declare_graphs(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add(
        "--precision",
        choices=typing.get_args(Precision),
        default="fp32",
        help="of weights and arithmetic; bf16 is for TensorRT and models that overflow in fp16, such as T5 (default: fp32)",
    )
    add(
        "--target",
        choices=typing.get_args(Target),
        action="append",
        dest="targets",
        help="what the graphs are for, as above; may be given several times (default: cpu)",
    )
    add("--tensorrt", action="store_const", const="tensorrt", help="the same as --target tensorrt")
    add(
        "--compute-capability",
        action="append",
        metavar="M.N",
        help="GPU generation to build TensorRT engines for, e.g. 8.6; may be given several times",
    )
    add(
        "--lowering",
        choices=("native", "portable"),
        help="graphs for the CPU: custom operators (native, the default if they are built) or standard ones (portable, "
        "slower, for a server without dragoman's operators; docs/operators.md)",
    )
    add(
        "--shortlist",
        action="append",
        default=[],
        metavar="[LANGUAGE=]FILE",
        help="text in the target language, one sentence per line: only its tokens and single characters are generated, "
        "which is faster if the vocabulary is large; the loss is measured. With a LANGUAGE it applies to requests into "
        "that language; may be given several times (docs/bundle.md)",
    )


def _declare_model(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    for side in ("source", "target"):
        add(
            f"--max-{side}-tokens",
            type=int,
            metavar="N",
            help=f"longest {side} (default: as many tokens as the model has positions; 512 where it has no limit)",
        )
    add(
        "--segmentation",
        choices=typing.get_args(Segmentation),
        help="unit that the model was trained on: the server splits texts into sentences or lines, or not at all "
        "(default: none for T5, BART and Pegasus, sentence for translation models)",
    )
    add(
        "--task-prefix",
        default="",
        metavar="TEXT",
        help='default text before each source, for models of several tasks such as T5: "summarize: " (a request may name '
        "another task or prefix; docs/export.md)",
    )


def _declare_check(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add(
        "--verify-file",
        type=Path,
        metavar="FILE",
        help="sentences to verify with, one per line, references after tabs (default: sentences that come with dragoman)",
    )
    add(
        "--max-quality-loss",
        type=float,
        metavar="POINTS",
        help="for fp16, bf16, int8 and shortlists: largest loss in BLEU against references, or in chrF against the "
        "original's output if there are none (default: 1 and 25)",
    )


def _declare_source(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add(
        "--format",
        metavar="NAME",
        help="format of SOURCE, if it is not detected: hugging-face, ctranslate2, argos, dragoman, torch-transformer, "
        "fairseq, opennmt-py or marian (docs/formats.md)",
    )
    add("--dictionaries", type=Path, metavar="DIR", help="directory of dict.*.txt, if not beside SOURCE")
    add("--bpe-codes", type=Path, metavar="FILE", help="merges of subword-nmt, if not beside SOURCE")
    add(
        "--moses",
        metavar="SOURCE-TARGET",
        help="languages of the Moses tokenizer that the training text went through, e.g. en-de; the bundle then applies it. "
        '"none" if requests are tokenised already (default: detected)',
    )
    add(
        "--spm",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="sentencepiece model, if not beside SOURCE; give a second one for the target language if it has its own",
    )


def run(arguments: argparse.Namespace) -> int:
    """Export and print the summary."""
    from rich.console import Console

    from dragoman.export.checkpoint import CompanionFiles, TokenLimits
    from dragoman.export.pipeline import ExportOptions, export_bundle
    from dragoman.export.progress import TerminalStages
    from dragoman.export.report import print_report
    from dragoman.export.shortlist import parse_shortlists
    from dragoman.export.staging import interrupted_by_sigterm
    from dragoman.export.tensorrt import parse_capabilities

    texts = parse_shortlists(arguments.shortlist)
    targets = [*(arguments.targets or []), *([arguments.tensorrt] if arguments.tensorrt else [])]
    options = ExportOptions(
        checkpoint=arguments.checkpoint,
        output=arguments.output,
        precision=arguments.precision,
        targets=tuple(dict.fromkeys(targets or ["cpu"])),
        compute_capabilities=parse_capabilities(arguments.compute_capability) if arguments.compute_capability else None,
        shortlist=texts.pop(None, None),
        shortlists={language: path for language, path in texts.items() if language is not None},
        verify_file=arguments.verify_file,
        max_quality_loss=arguments.max_quality_loss,
        limits=TokenLimits(arguments.max_source_tokens, arguments.max_target_tokens),
        force=arguments.force,
        lowering=arguments.lowering,
        segmentation=arguments.segmentation,
        task_prefix=arguments.task_prefix,
        format_name=arguments.format,
        companions=CompanionFiles(arguments.dictionaries, arguments.bpe_codes, tuple(arguments.spm), arguments.moses),
    )
    with interrupted_by_sigterm(), TerminalStages(Console(stderr=True)) as stages:
        report = export_bundle(options, stages)
    if arguments.json:
        print(report.manifest.to_json(), end="")
    else:
        print_report(report, Console())
    return 0
