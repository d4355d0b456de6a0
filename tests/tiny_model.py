"""Models of a few hundred kB with random weights, written in milliseconds: all is real but the sense of the text.

The vocabulary is a byte-level BPE one: all bytes, some merges, ChatML's control tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import gguf
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
CONTROL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
MERGED = (
    "Ġt",
    "he",
    "Ġthe",
    "in",
    "an",
    "Ġa",
    "er",
    "on",
    "Ġs",
    "ing",
    "hello",
    "world",
    "ll",
    "hell",
    "ld",
    "wo",
    "wor",
)

Shapes = dict[str, tuple[str, ...]]
"""Of a layer's tensors, rows first, by the names of `sizes`."""

NORM: Shapes = {"attn_norm.weight": ("width",)}
ATTENTION: Shapes = {
    "attn_q.weight": ("width", "width"),
    "attn_k.weight": ("shared", "width"),
    "attn_v.weight": ("shared", "width"),
    "attn_output.weight": ("width", "width"),
}
HEAD_NORMS: Shapes = {"attn_q_norm.weight": ("head",), "attn_k_norm.weight": ("head",)}
FEED_FORWARD: Shapes = {
    "ffn_norm.weight": ("width",),
    "ffn_gate.weight": ("width", "width"),
    "ffn_up.weight": ("width", "width"),
    "ffn_down.weight": ("width", "width"),
}
POST_NORMS: Shapes = {"post_attention_norm.weight": ("width",), "post_ffw_norm.weight": ("width",)}
MAMBA: Shapes = {
    "ssm_a": ("inner", "state"),
    "ssm_in.weight": ("inner2", "width"),
    "ssm_conv1d.weight": ("inner", "kernel"),
    "ssm_conv1d.bias": ("inner",),
    "ssm_x.weight": ("projected", "inner"),
    "ssm_dt.weight": ("inner", "rank"),
    "ssm_dt.bias": ("inner",),
    "ssm_d": ("inner",),
    "ssm_out.weight": ("width", "inner"),
}
MAMBA_NORMS: Shapes = {
    "ssm_dt_norm.weight": ("rank",),
    "ssm_b_norm.weight": ("state",),
    "ssm_c_norm.weight": ("state",),
}

ATTENTION_KEYS = {
    "attention.head_count": "heads",
    "attention.head_count_kv": "key_heads",
    "rope.dimension_count": "head",
}
MAMBA_KEYS = {
    "ssm.conv_kernel": "kernel",
    "ssm.inner_size": "inner",
    "ssm.state_size": "state",
    "ssm.time_step_rank": "rank",
}


class Family(Struct, frozen=True):
    """One of llama.cpp's architectures: its layers' tensors, taken in turn, and names of `sizes` by metadata key."""

    architecture: str
    layers: tuple[Shapes, ...]
    keys: Mapping[str, str]
    spread: float = 1.5  # of the weights, times the square root of the width


FAMILIES = {
    "llama": Family("llama", (NORM | ATTENTION | FEED_FORWARD,), ATTENTION_KEYS),
    "qwen3": Family("qwen3", (NORM | ATTENTION | HEAD_NORMS | FEED_FORWARD,), ATTENTION_KEYS),
    # Sliding windows in the even layers.
    "gemma3": Family(
        "gemma3",
        (NORM | ATTENTION | HEAD_NORMS | POST_NORMS | FEED_FORWARD,),
        ATTENTION_KEYS | {"attention.sliding_window": "window", "attention.sliding_window_pattern": "two"},
    ),
    "mamba": Family("mamba", (NORM | MAMBA,), MAMBA_KEYS | {"attention.head_count": "none"}, spread=0.8),
    # Mamba and attention in turn.
    "jamba": Family(
        "jamba",
        (NORM | MAMBA | MAMBA_NORMS | FEED_FORWARD, NORM | ATTENTION | FEED_FORWARD),
        MAMBA_KEYS | ATTENTION_KEYS | {"attention.head_count_kv": "in_turn"},
        spread=0.8,
    ),
}


class Tiny(Struct, frozen=True, kw_only=True):
    """What differs between tiny models. Everything is fixed by it, the weights through `seed`."""

    family: str = "llama"  # one of FAMILIES
    seed: int = 0
    name: str = "Tiny"
    context: int = 1024
    width: int = 64
    layers: int = 2
    window: int = 16  # tokens, where windows slide
    add_bos: bool = False
    chat_template: str | None = CHATML
    tokenizer: str = "gpt2"  # which of llama.cpp's tokenizers, one that reads merges
    pre: str = "gpt-2"  # which of llama.cpp's pre-tokenizers
    extra: tuple[str, ...] = ()  # further control tokens, last in the vocabulary
    # Token types by spelling, against those that fit.
    types: Mapping[str, gguf.TokenType] = {}
    # Values by tensor name, against the random ones.
    fill: Mapping[str, float] = {}
    # Tokens whose embedding is no number.
    poisonous: tuple[int, ...] = ()


def write_tiny_model(path: Path, tiny: Tiny | None = None) -> Path:
    tiny = tiny or Tiny()
    family = FAMILIES[tiny.family]
    writer = gguf.GGUFWriter(path, family.architecture)
    writer.add_name(tiny.name)
    tokens = _add_vocabulary(writer, tiny)
    _add_metadata(writer, tiny, family)
    random = np.random.default_rng(tiny.seed)
    embedding = random.normal(0, 1, (tokens, tiny.width)).astype(np.float32)
    embedding[list(tiny.poisonous)] = np.nan
    writer.add_tensor("token_embd.weight", embedding)
    writer.add_tensor("output.weight", random.normal(0, 0.3, (tokens, tiny.width)).astype(np.float32))
    writer.add_tensor("output_norm.weight", np.ones(tiny.width, np.float32))
    for name, tensor in _layers(tiny, family):
        writer.add_tensor(name, np.full_like(tensor, tiny.fill[name]) if name in tiny.fill else tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def sizes(tiny: Tiny) -> dict[str, int]:
    width, state, rank = tiny.width, 16, 4
    inner = 2 * width
    attention = {"width": width, "heads": 4, "key_heads": 2, "head": width // 4, "shared": width // 2}
    mamba = {"inner": inner, "inner2": 2 * inner, "state": state, "kernel": 4, "rank": rank}
    return attention | mamba | {"projected": rank + 2 * state, "window": tiny.window, "two": 2, "none": 0}


def _add_metadata(writer: gguf.GGUFWriter, tiny: Tiny, family: Family) -> None:
    known: dict[str, int | list[int]] = {**sizes(tiny), "in_turn": [0, 2] * (tiny.layers // 2)}
    writer.add_context_length(tiny.context)
    writer.add_embedding_length(tiny.width)
    writer.add_block_count(tiny.layers)
    writer.add_feed_forward_length(tiny.width if "ffn_norm.weight" in family.layers[0] else 0)
    writer.add_layer_norm_rms_eps(1e-5)
    for key, name in family.keys.items():
        match known[name]:
            case int(number):
                writer.add_uint32(f"{family.architecture}.{key}", number)
            case numbers:
                writer.add_array(f"{family.architecture}.{key}", numbers)


def _layers(tiny: Tiny, family: Family) -> Iterator[tuple[str, NDArray[np.float32]]]:
    random = np.random.default_rng(tiny.seed + 1)
    known = sizes(tiny)
    deviation = family.spread / np.sqrt(tiny.width)
    for layer in range(tiny.layers):
        for name, shape in family.layers[layer % len(family.layers)].items():
            size = [known[dimension] for dimension in shape]
            yield f"blk.{layer}.{name}", _values(name, size, deviation, random)


def _values(name: str, size: Sequence[int], deviation: float, random: np.random.Generator) -> NDArray[np.float32]:
    if "norm" in name:
        return np.ones(size, np.float32)
    if name == "ssm_a":  # a state that fades
        return -np.ones(size, np.float32)
    return random.normal(0, deviation, size).astype(np.float32)


def byte_letters() -> list[str]:
    """The letters that byte-level BPE writes for bytes 0 to 255: visible ones for themselves, others from U+0100."""
    visible = {*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)}
    others = iter(range(256, 512))
    return [chr(byte) if byte in visible else chr(next(others)) for byte in range(256)]


def _merges() -> list[str]:
    """For each merged token the two known tokens it is made of, the shortest first."""
    known = {*byte_letters(), *MERGED}
    found = []
    for token in sorted(MERGED, key=len):
        cut = next(i for i in range(1, len(token)) if token[:i] in known and token[i:] in known)
        found.append(f"{token[:cut]} {token[cut:]}")
    return found


def _add_vocabulary(writer: gguf.GGUFWriter, tiny: Tiny) -> int:
    tokens = [*CONTROL, *byte_letters(), *sorted(MERGED, key=len), *tiny.extra]
    usual = dict.fromkeys((*CONTROL, *tiny.extra), gguf.TokenType.CONTROL)
    writer.add_tokenizer_model(tiny.tokenizer)
    writer.add_tokenizer_pre(tiny.pre)
    writer.add_token_list(tokens)
    writer.add_token_types([{**usual, **tiny.types}.get(token, gguf.TokenType.NORMAL) for token in tokens])
    writer.add_token_merges(_merges())
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(2)
    writer.add_add_bos_token(tiny.add_bos)
    if tiny.chat_template is not None:
        writer.add_chat_template(tiny.chat_template)
    writer.add_vocab_size(len(tokens))
    return len(tokens)
