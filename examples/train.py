"""Train the Transformer of "Attention Is All You Need" on a small parallel text, into a directory that dragoman exports.

python examples/train.py --text sentences.tsv --output my-model --minutes 10
"""

from __future__ import annotations

import argparse
import math
import random
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import sentencepiece
import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from dragoman.export.training import TrainingForm, label_smoothed_loss, save_model, warm_up
from dragoman.export.transformer import TransformerConfig

PAD, START, END, UNKNOWN = 0, 1, 2, 3
LONGEST = 128  # tokens of a sentence; longer pairs are left out
HELD_OUT, MOST_HELD_OUT = 0.02, 200


@dataclass(frozen=True, slots=True)
class Pair:
    """A sentence and its translation, as tokens; the end token ends both."""

    source: list[int]
    target: list[int]


def main() -> None:
    """Read, learn the pieces, train, save."""
    arguments = parsed()
    console = Console()
    torch.manual_seed(arguments.seed)
    lines = read_lines(arguments.text)
    arguments.output.mkdir(parents=True, exist_ok=True)
    pieces = learn_pieces(lines, arguments.output / "pieces.model", arguments.vocabulary)
    random.Random(arguments.seed).shuffle(lines)  # noqa: S311 - nothing secret
    count = max(1, min(int(len(lines) * HELD_OUT), MOST_HELD_OUT))
    held, pairs = encoded(pieces, lines[:count]), encoded(pieces, lines[count:])
    if not held or not pairs:
        raise SystemExit(f"{arguments.text} has too few pairs of at most {LONGEST} tokens to learn from")
    held_out = arguments.output / "held-out.tsv"
    held_out.write_text("".join(f"{source}\t{target}\n" for source, target in lines[:count]), encoding="utf-8")
    form = TrainingForm(configuration(arguments, pieces.get_piece_size()), arguments.dropout)
    size = sum(parameter.numel() for parameter in form.parameters())
    console.print(f"{len(pairs)} pairs to learn from, {len(held)} held out; {size / 1e6:.1f} M parameters")
    train(form, pairs, held, arguments, console)
    save_model(
        arguments.output,
        form.model,
        tokenizer={"kind": "sentencepiece", "model": "pieces.model"},
        tokens={"pad": PAD, "start": START, "end": END, "unknown": UNKNOWN, "source_suffix": END},
        generation={"beam_size": 4, "max_length": LONGEST},
        languages=(arguments.source_language, arguments.target_language),
    )
    export = f"dragoman export {arguments.output} --output bundles/mine --verify-file {held_out}"
    console.print(f"saved in {arguments.output}; next: {export}", soft_wrap=True)


def parsed() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--text", type=Path, required=True, metavar="TSV", help="source, tab, translation on every line")
    add("--output", type=Path, required=True, metavar="DIR", help="where the model goes")
    add("--minutes", type=float, default=10.0, help="how long to train at most (default: 10)")
    add("--steps", type=int, default=100_000, help="how many updates to make at most (default: 100000)")
    add("--vocabulary", type=int, default=4000, help="pieces of both languages together (default: 4000)")
    add("--width", type=int, default=256, help="d_model (default: 256; the paper's base model: 512)")
    add("--layers", type=int, default=3, help="of the encoder and of the decoder (default: 3; the paper: 6)")
    add("--heads", type=int, default=4, help="of every attention (default: 4; the paper: 8)")
    add("--dropout", type=float, default=0.1, help="(default: 0.1, as in the paper)")
    add("--batch-tokens", type=int, default=2000, help="tokens of a batch, padding counted (default: 2000)")
    add("--warm-up", type=int, default=400, help="steps until the learning rate is highest (default: 400; the paper: 4000)")
    add("--source-language", metavar="CODE", help="for the bundle, e.g. en")
    add("--target-language", metavar="CODE", help="for the bundle, e.g. de")
    add("--seed", type=int, default=1)
    return parser.parse_args()


def configuration(arguments: argparse.Namespace, pieces: int) -> TransformerConfig:
    """The paper's model: post-norm, sinusoids, one table for both embeddings and the output, all in the given size."""
    return TransformerConfig(
        d_model=arguments.width,
        encoder_layers=arguments.layers,
        decoder_layers=arguments.layers,
        encoder_heads=arguments.heads,
        decoder_heads=arguments.heads,
        encoder_feed_forward=4 * arguments.width,
        decoder_feed_forward=4 * arguments.width,
        source_vocabulary=pieces,
        target_vocabulary=pieces,
        max_source_positions=LONGEST,
        max_target_positions=LONGEST,
        embedding_scale=arguments.width**0.5,
        output_bias=False,
    )


def read_lines(path: Path) -> list[tuple[str, str]]:
    """Pairs of texts; further columns are other translations and are left out."""
    rows = [line.split("\t") for line in path.read_text(encoding="utf-8").splitlines()]
    pairs = [(row[0].strip(), row[1].strip()) for row in rows if len(row) > 1]
    if not (pairs := [pair for pair in pairs if all(pair)]):
        raise SystemExit(f"{path} has no line with a sentence, a tab and its translation")
    return pairs


def learn_pieces(lines: Sequence[tuple[str, str]], path: Path, vocabulary: int) -> sentencepiece.SentencePieceProcessor:
    """A sentencepiece model of both sides, written to `path`."""
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([text for pair in lines for text in pair]),
        model_prefix=str(path.with_suffix("")),
        vocab_size=vocabulary,
        hard_vocab_limit=False,  # a small text may have fewer
        character_coverage=0.9995,
        pad_id=PAD,
        bos_id=START,
        eos_id=END,
        unk_id=UNKNOWN,
        minloglevel=2,
    )
    path.with_suffix(".vocab").unlink()
    return sentencepiece.SentencePieceProcessor(model_file=str(path))


def encode(pieces: sentencepiece.SentencePieceProcessor, source: str, target: str) -> Pair | None:
    """The pair as tokens; None when one side is too long."""
    pair = Pair([*pieces.encode(source), END], [*pieces.encode(target), END])
    return pair if max(len(pair.source), len(pair.target)) <= LONGEST else None


def encoded(pieces: sentencepiece.SentencePieceProcessor, lines: Sequence[tuple[str, str]]) -> list[Pair]:
    """All pairs that are not too long."""
    return [pair for source, target in lines if (pair := encode(pieces, source, target)) is not None]


def batches(pairs: Sequence[Pair], most_tokens: int, rng: random.Random) -> Iterator[list[Pair]]:
    """Pairs of similar lengths together, in another order every time."""
    ordered = sorted(pairs, key=lambda pair: (len(pair.target), len(pair.source), rng.random()))
    made: list[list[Pair]] = [[]]
    longest = 0
    for pair in ordered:
        longest = max(longest, len(pair.source), len(pair.target))
        if made[-1] and (len(made[-1]) + 1) * longest > most_tokens:
            made.append([])
            longest = max(len(pair.source), len(pair.target))
        made[-1].append(pair)
    rng.shuffle(made)
    yield from made


def loss_of(form: TrainingForm, batch: Sequence[Pair], smoothing: float) -> torch.Tensor:
    """Per token; the decoder reads the target from the start token on and is asked for it up to the end token."""
    lengths = torch.tensor([len(pair.source) for pair in batch], dtype=torch.int32)
    logits = form(padded([pair.source for pair in batch]), lengths, padded([[START, *pair.target[:-1]] for pair in batch]))
    return label_smoothed_loss(logits, padded([pair.target for pair in batch]), PAD, smoothing)


def padded(rows: Sequence[Sequence[int]]) -> torch.Tensor:
    """(rows, longest)."""
    longest = max(map(len, rows))
    return torch.tensor([[*row, *[PAD] * (longest - len(row))] for row in rows])


def train(
    form: TrainingForm, pairs: Sequence[Pair], held: Sequence[Pair], arguments: argparse.Namespace, console: Console
) -> None:
    """Adam with the paper's settings and learning rate until the time or the steps are over, or until Ctrl-C."""
    optimizer = torch.optim.Adam(form.parameters(), lr=0.0, betas=(0.9, 0.98), eps=1e-9)
    rng = random.Random(arguments.seed)  # noqa: S311
    step, began_s, smoothed = 0, time.monotonic(), math.nan
    held_out = held_out_loss(form, held, arguments.batch_tokens)
    bar = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[told]}"), TimeElapsedColumn())
    with Progress(*bar, console=console) as progress, suppress(KeyboardInterrupt):  # what was learned until then is saved
        task = progress.add_task("training", total=1.0, told="")
        while (done := share_done(step, began_s, arguments)) < 1.0:
            form.train()
            for batch in batches(pairs, arguments.batch_tokens, rng):
                step += 1
                for group in optimizer.param_groups:
                    group["lr"] = warm_up(step, arguments.width, arguments.warm_up)
                loss = loss_of(form, batch, smoothing=0.1)
                optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                smoothed = loss.item() if math.isnan(smoothed) else 0.98 * smoothed + 0.02 * loss.item()
                done = share_done(step, began_s, arguments)
                progress.update(task, completed=done, told=f"step {step}, loss {smoothed:.2f}, held out {held_out:.2f}")
                if done >= 1.0:
                    break
            held_out = held_out_loss(form, held, arguments.batch_tokens)
    held_out = held_out_loss(form, held, arguments.batch_tokens)
    console.print(f"{step} steps; the sentences that were held out have the perplexity {math.exp(held_out):.1f}")


def share_done(step: int, began_s: float, arguments: argparse.Namespace) -> float:
    """1.0 when the time or the steps are over."""
    return max(step / arguments.steps, (time.monotonic() - began_s) / (60 * arguments.minutes))


@torch.no_grad()
def held_out_loss(form: TrainingForm, held: Sequence[Pair], most_tokens: int) -> float:
    """Per token of sentences that were not learned from, without label smoothing and dropout."""
    form.eval()
    total, count = 0.0, 0
    for batch in batches(held, most_tokens, random.Random(0)):  # noqa: S311
        tokens = sum(len(pair.target) for pair in batch)
        total, count = total + loss_of(form, batch, smoothing=0.0).item() * tokens, count + tokens
    return total / count


if __name__ == "__main__":
    main()
