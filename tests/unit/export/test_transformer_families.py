"""The same module, configured as other members of the family, computes what Hugging Face's implementations compute."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import pytest
import torch
from torch import Tensor, nn

from dragoman.export.checkpoint.readers.t5 import RENAMED as T5
from dragoman.export.checkpoint.renaming import BART, Rules, renamed
from dragoman.export.checkpoint.weights import open_checkpoint_weights
from dragoman.export.transformer import KeyValue, Transformer, TransformerConfig

PAD = 1
BART_NAMES: Rules = (
    (r"^(source|target)_embedding\.", "model.shared."),
    *BART,
    (r"^output\.bias", "final_logits_bias"),
    (r"^(encoder|decoder)\.", r"model.\1."),
)
T5_NAMES: Rules = ((r"^(source|target)_embedding\.", "shared."), (r"^output\.weight", "lm_head.weight"), *T5)


class Names:
    """A reader made of regular expressions: what a new architecture takes."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules

    def weight_names(self, ours: str) -> tuple[str, ...]:
        return (renamed(ours, self._rules),)

    def is_optional(self, ours: str) -> bool:
        return False

    def is_ignored(self, theirs: str) -> bool:
        return False


def randomised(model: nn.Module) -> nn.Module:
    torch.manual_seed(1)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    for name, buffer in model.named_buffers():
        if name == "final_logits_bias":
            nn.init.normal_(buffer)
    return model.eval()


def own_weights(model: nn.Module, unwanted: Callable[[str], bool]) -> Mapping[str, Tensor]:
    return {name: tensor for name, tensor in model.state_dict().items() if not unwanted(name)}


def assert_same_logits(hf: nn.Module, model: Transformer) -> None:
    """Three sources of different lengths, six forced target tokens each, one step at a time."""
    lengths = torch.tensor([9, 4, 6], dtype=torch.int32)
    source, target = torch.randint(3, 50, (3, 9)), torch.randint(3, 50, (3, 6))
    mask = (torch.arange(9) < lengths[:, None]).long()
    with torch.inference_mode():
        expected = hf(input_ids=source, attention_mask=mask, decoder_input_ids=target).logits
        memories = model.encode(source, lengths)
        shape = model.config.decoder_attention
        empty = torch.zeros(3, shape.heads, 8, shape.head_dim)
        pasts = [KeyValue(empty, empty)] * len(memories)
        for at in range(6):
            place = torch.full((3, 1), at, dtype=torch.int32)
            logits, pasts = model.step(target[:, at : at + 1], place, lengths, memories, pasts)
            torch.testing.assert_close(logits, expected[:, at], rtol=1e-4, atol=1e-4)


SIZES = {
    "d_model": 24,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_heads": 3,
    "decoder_heads": 3,
    "encoder_feed_forward": 20,
    "decoder_feed_forward": 28,
    "source_vocabulary": 50,
    "target_vocabulary": 50,
    "max_source_positions": 30,
    "max_target_positions": 30,
}

BART_SIZES = {
    "d_model": 24,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 3,
    "decoder_attention_heads": 3,
    "encoder_ffn_dim": 20,
    "decoder_ffn_dim": 28,
    "vocab_size": 50,
    "max_position_embeddings": 30,
    "pad_token_id": PAD,
}


def test_bart_is_learned_positions_with_an_offset_and_a_norm_on_the_embedding() -> None:
    from transformers import BartConfig, BartForConditionalGeneration

    hf = randomised(BartForConditionalGeneration(BartConfig(**BART_SIZES, scale_embedding=False)))
    config = TransformerConfig(**SIZES, positions="learned", position_offset=2, embedding_norm=True, activation="gelu")
    model = open_checkpoint_weights(
        config, own_weights(hf, lambda name: "embed_tokens" in name or "lm_head" in name), Names(BART_NAMES)
    ).model
    assert_same_logits(hf, model)


def test_mbart_is_bart_with_the_norm_before_the_layer_and_after_the_last() -> None:
    from transformers import MBartConfig, MBartForConditionalGeneration

    hf = randomised(MBartForConditionalGeneration(MBartConfig(**BART_SIZES, scale_embedding=True)))
    config = TransformerConfig(
        **SIZES,
        positions="learned",
        position_offset=2,
        embedding_norm=True,
        pre_norm=True,
        final_norm=True,
        activation="gelu",
        embedding_scale=24**0.5,
    )
    model = open_checkpoint_weights(
        config, own_weights(hf, lambda name: "embed_tokens" in name or "lm_head" in name), Names(BART_NAMES)
    ).model
    assert_same_logits(hf, model)


@pytest.mark.parametrize(
    ("feed_forward", "gated"), [pytest.param("relu", False, id="v1.0"), pytest.param("gated-gelu", True, id="v1.1")]
)
def test_t5_is_relative_positions_rms_norms_and_no_biases(feed_forward: str, gated: bool) -> None:
    from transformers import T5Config, T5ForConditionalGeneration

    hf = randomised(
        T5ForConditionalGeneration(
            T5Config(
                vocab_size=50,
                d_model=24,
                d_kv=6,
                num_heads=3,
                d_ff=20,
                num_layers=2,
                num_decoder_layers=2,
                relative_attention_num_buckets=8,
                relative_attention_max_distance=12,
                feed_forward_proj=feed_forward,
                tie_word_embeddings=not gated,
                pad_token_id=PAD,
            )
        )
    )
    config = TransformerConfig(
        **{**SIZES, "decoder_feed_forward": 20},
        attention_width=18,
        positions="relative",
        relative_buckets=8,
        relative_max_distance=12,
        pre_norm=True,
        norm="rms",
        norm_epsilon=1e-6,
        final_norm=True,
        activation="gelu_tanh" if gated else "relu",
        gated=gated,
        attention_bias=False,
        feed_forward_bias=False,
        attention_scale=1.0,
        output_bias=False,
        tied_output=not gated,
        output_scale=1.0 if gated else 24**-0.5,
    )
    names: Rules = ((r"\.gate\.", ".wi_0."), (r"\.inner\.", ".wi_1.")) if gated else ((r"\.inner\.", ".wi."),)
    tied = "embed_tokens" if gated else "embed_tokens|lm_head"
    model = open_checkpoint_weights(
        config, own_weights(hf, lambda name: bool(re.search(tied, name))), Names((*T5_NAMES, *names))
    ).model
    assert_same_logits(hf, model)
