"""A tiny Transformer that learns to reverse sequences of letters: a synthetic task that is exact when it is learned."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from torch import Tensor

from dragoman.export.training import TrainingForm, label_smoothed_loss, save_model, warm_up
from dragoman.export.transformer import TransformerConfig

PAD, START, END, UNKNOWN = 0, 1, 2, 3
LETTERS = "abcdefgh"
LONGEST, WIDTH = 6, 32
MOST_STEPS, CHECKED_EVERY = 3000, 100


def config() -> TransformerConfig:
    return TransformerConfig(
        d_model=WIDTH,
        encoder_layers=1,
        decoder_layers=1,
        encoder_heads=2,
        decoder_heads=2,
        encoder_feed_forward=2 * WIDTH,
        decoder_feed_forward=2 * WIDTH,
        source_vocabulary=4 + len(LETTERS),
        target_vocabulary=4 + len(LETTERS),
        max_source_positions=16,
        max_target_positions=16,
        embedding_scale=WIDTH**0.5,
        output_bias=False,
    )


def examples(count: int, random: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Sources (count, LONGEST + 1), their lengths, and targets; each with its end token."""
    lengths = torch.randint(1, LONGEST + 1, (count,), generator=random)
    letters = torch.randint(4, 4 + len(LETTERS), (count, LONGEST), generator=random)
    source, target = torch.full((2, count, LONGEST + 1), PAD)
    for row, length in enumerate(lengths.tolist()):
        source[row, : length + 1] = torch.cat([letters[row, :length], torch.tensor([END])])
        target[row, : length + 1] = torch.cat([letters[row, :length].flip(0), torch.tensor([END])])
    return source, (lengths + 1).int(), target


def read_from_start(target: Tensor) -> Tensor:
    """What the decoder reads while it is to generate `target`."""
    return torch.cat([torch.full((len(target), 1), START), target[:, :-1]], dim=1)


def trained() -> TrainingForm:
    """Until it reverses 500 unseen sequences without a mistake."""
    torch.manual_seed(1)
    random = torch.Generator().manual_seed(3)
    form, unseen = TrainingForm(config(), dropout=0.0), examples(500, random)
    optimizer = torch.optim.Adam(form.parameters(), lr=0.0, betas=(0.9, 0.98), eps=1e-9)
    for step in range(1, MOST_STEPS + 1):
        source, lengths, target = examples(64, random)
        for group in optimizer.param_groups:
            group["lr"] = warm_up(step, WIDTH, 200)
        loss = label_smoothed_loss(form(source, lengths, read_from_start(target)), target, PAD)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % CHECKED_EVERY == 0 and exact(form, *unseen):
            return form.eval()
    raise AssertionError(f"it has not learned to reverse in {MOST_STEPS} steps")


@torch.no_grad()
def exact(form: TrainingForm, source: Tensor, lengths: Tensor, target: Tensor) -> bool:
    said = form(source, lengths, read_from_start(target)).argmax(-1)
    return bool(((said == target) | (target == PAD)).all())


def save(directory: Path, form: TrainingForm) -> Path:
    """In our own format, with letters as tokens."""
    directory.mkdir()
    pieces = ["<pad>", "<s>", "</s>", "<unk>", *LETTERS]
    (directory / "letters.json").write_text(json.dumps({piece: at for at, piece in enumerate(pieces)}))
    save_model(
        directory,
        form.model,
        tokenizer={"kind": "characters", "vocabulary": "letters.json"},
        tokens={"pad": PAD, "start": START, "end": END, "unknown": UNKNOWN, "source_suffix": END},
        generation={"max_length": 12},
    )
    return directory
