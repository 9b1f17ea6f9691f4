from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from dragoman.errors import ExportError
from dragoman.export.transformer import AttentionShape, KeyValue, TorchOperators, TransformerConfig
from dragoman.export.transformer.attention import attention
from dragoman.export.transformer.linear import FeedForward, LayerNorm, Linear, RMSNorm
from dragoman.export.transformer.positions import relative_bucket, sinusoids


def config(**changes: object) -> TransformerConfig:
    sizes: dict[str, object] = {
        "d_model": 8,
        "encoder_layers": 1,
        "decoder_layers": 1,
        "encoder_heads": 2,
        "decoder_heads": 2,
        "encoder_feed_forward": 12,
        "decoder_feed_forward": 12,
        "source_vocabulary": 11,
        "target_vocabulary": 11,
        "max_source_positions": 16,
        "max_target_positions": 16,
    }
    return TransformerConfig(**{**sizes, **changes})  # type: ignore[arg-type]


def randomised(module: torch.nn.Module) -> torch.nn.Module:
    torch.manual_seed(0)
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter)
    return module


@pytest.mark.parametrize("width", [8, 7])
def test_sinusoids_are_those_of_the_paper_with_sines_before_cosines(width: int) -> None:
    table = sinusoids(50, width)
    for position in (0, 1, 49):
        for i in range(width):
            angle = position / 10000 ** ((2 * (i // 2)) / width)
            sines = math.ceil(width / 2)
            column = i // 2 if i % 2 == 0 else sines + i // 2
            expected = math.sin(angle) if i % 2 == 0 else math.cos(angle)
            assert table[position, column].item() == pytest.approx(expected, abs=1e-6)


def test_sinusoids_are_the_ones_marian_was_trained_with() -> None:
    from transformers.models.marian.modeling_marian import MarianSinusoidalPositionalEmbedding

    assert torch.equal(sinusoids(512, 30), MarianSinusoidalPositionalEmbedding(512, 30).create_weight())


def test_a_linear_layer_is_a_product_with_its_weight_as_stored() -> None:
    layer = randomised(Linear(3, 5))
    x = torch.randn(2, 4, 3)
    assert torch.allclose(layer(x), F.linear(x, layer.weight.t(), layer.bias))


def test_layer_norm_centres_scales_and_shifts() -> None:
    norm = randomised(LayerNorm(6, 1e-5))
    x = torch.randn(3, 6) * 4 + 2
    expected = (x - x.mean(-1, keepdim=True)) / (x.var(-1, unbiased=False, keepdim=True) + 1e-5).sqrt()
    assert torch.allclose(norm(x), expected * norm.weight + norm.bias, atol=1e-5)


def test_rms_norm_only_scales() -> None:
    norm = randomised(RMSNorm(6, 1e-6))
    x = torch.randn(3, 6) * 4 + 2
    assert torch.allclose(norm(x), x / (x.pow(2).mean(-1, keepdim=True) + 1e-6).sqrt() * norm.weight, atol=1e-5)


def test_rms_norm_of_large_halves_does_not_overflow() -> None:
    norm = RMSNorm(4, 1e-6).half()
    torch.nn.init.ones_(norm.weight)
    assert torch.allclose(norm(torch.full((1, 4), 1000.0).half()), torch.ones(1, 4).half())  # 1000² is beyond float16


@pytest.mark.parametrize(
    ("activation", "function"),
    [
        ("relu", F.relu),
        ("gelu", F.gelu),
        ("gelu_tanh", lambda x: 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))),
        ("silu", lambda x: x * torch.sigmoid(x)),
    ],
)
@pytest.mark.parametrize("gated", [False, True])
def test_feed_forward_networks_of_every_kind(activation: str, function: object, gated: bool) -> None:
    network = randomised(FeedForward(config(activation=activation, gated=gated, feed_forward_bias=False), hidden=12))
    x = torch.randn(2, 3, 8)
    inner = x @ network.inner.weight
    hidden = function(x @ network.gate.weight) * inner if gated else function(inner)  # type: ignore[operator, union-attr]
    assert torch.allclose(network(x), hidden @ network.outer.weight, atol=1e-5)


def test_attention_is_torchs_own_scaled_dot_product() -> None:
    query, key, value = (torch.randn(2, 3, length, 5) for length in (4, 6, 6))
    visible = torch.rand(2, 1, 4, 6) > 0.3
    visible[..., 0] = True
    seen = attention(query, KeyValue(key, value), 5**-0.5, visible)
    assert torch.allclose(seen, F.scaled_dot_product_attention(query, key, value, visible), atol=1e-6)


def test_padding_changes_nothing() -> None:
    shape = AttentionShape(heads=2, head_dim=4, scale=0.5)
    packed = torch.randn(1, 5, 24)
    garbage = torch.cat([packed, torch.full((1, 3, 24), 1e3)], dim=1)
    lengths = torch.tensor([5], dtype=torch.int32)
    operators = TorchOperators()
    padded = operators.encoder_attention(garbage, lengths, shape, None)[:, :5]
    assert torch.allclose(padded, operators.encoder_attention(packed, lengths, shape, None), atol=1e-6)


def causal(packed: Tensor, shape: AttentionShape) -> Tensor:
    """Masked self-attention over whole sequences, as the paper draws it; packed (rows, length, 3·width)."""
    query, key, value = (
        part.unflatten(-1, (shape.heads, shape.head_dim)).transpose(1, 2) for part in packed.chunk(3, dim=-1)
    )
    return F.scaled_dot_product_attention(query, key, value, is_causal=True).transpose(1, 2).flatten(2)


def test_steps_over_a_cache_are_the_masked_attention_of_the_paper_even_when_rows_stand_apart() -> None:
    shape = AttentionShape(heads=2, head_dim=4, scale=0.5)
    rows, length = 4, 6
    packed = torch.randn(rows, length, 24)
    expected = causal(packed, shape)
    past = KeyValue(torch.randn(rows, 2, 8, 4), torch.randn(rows, 2, 8, 4))  # garbage: position 0 must hide it
    for tick in range(length + rows):
        at = (tick - torch.arange(rows)).clamp(0, length - 1)  # row r starts r ticks late
        step = packed[torch.arange(rows), at].reshape(2, 2, 24)
        seen, past = TorchOperators().step_attention(step, past, at.int().reshape(2, 2), shape, None)
        assert torch.allclose(seen.reshape(rows, 8), expected[torch.arange(rows), at], atol=1e-6)


@pytest.mark.parametrize("both_sides", [True, False])
def test_relative_buckets_are_those_of_t5(both_sides: bool) -> None:
    from transformers.models.t5.modeling_t5 import T5Attention

    distance = torch.arange(-300, 300)[None]
    expected = T5Attention._relative_position_bucket(distance, both_sides, 32, 128)
    assert torch.equal(relative_bucket(distance, 32, 128, both_sides), expected)


def test_heads_must_divide_the_width() -> None:
    with pytest.raises(ExportError, match="3 heads"):
        config(decoder_heads=3)


def test_one_embedding_can_not_serve_two_vocabularies() -> None:
    with pytest.raises(ExportError, match="one embedding"):
        config(target_vocabulary=12)
