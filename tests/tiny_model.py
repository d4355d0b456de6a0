"""Models of a few hundred kB with random weights, written in milliseconds: all is real but the sense of the text.

The vocabulary is a byte-level BPE one: all bytes, some merges, ChatML's control tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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

Tensors = Iterator[tuple[str, NDArray[np.float32]]]


class Tiny(Struct, frozen=True, kw_only=True):
    """What differs between tiny models. Everything is fixed by it, the weights through `seed`."""

    seed: int = 0
    name: str = "Tiny"
    context: int = 1024
    width: int = 64
    layers: int = 2
    recurrent: bool = False  # Mamba instead of attention
    add_bos: bool = False
    chat_template: str | None = CHATML
    pre: str = "gpt-2"  # which of llama.cpp's pre-tokenizers
    extra: tuple[str, ...] = ()  # further control tokens, last in the vocabulary
    # Token types by spelling, against those that fit.
    types: Mapping[str, gguf.TokenType] = {}
    # Values by tensor name, against the random ones.
    fill: Mapping[str, float] = {}


def write_tiny_model(path: Path, tiny: Tiny | None = None) -> Path:
    tiny = tiny or Tiny()
    writer = gguf.GGUFWriter(path, "mamba" if tiny.recurrent else "llama")
    writer.add_name(tiny.name)
    tokens = _add_vocabulary(writer, tiny)
    tensors = _mamba(writer, tiny) if tiny.recurrent else _llama(writer, tiny)
    random = np.random.default_rng(tiny.seed)
    writer.add_tensor("token_embd.weight", random.normal(0, 1, (tokens, tiny.width)).astype(np.float32))
    writer.add_tensor("output.weight", random.normal(0, 0.3, (tokens, tiny.width)).astype(np.float32))
    writer.add_tensor("output_norm.weight", np.ones(tiny.width, np.float32))
    for name, tensor in tensors:
        writer.add_tensor(name, np.full_like(tensor, tiny.fill[name]) if name in tiny.fill else tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


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
    writer.add_tokenizer_model("gpt2")
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


def _llama(writer: gguf.GGUFWriter, tiny: Tiny) -> Tensors:
    heads, shared = 4, 2
    writer.add_context_length(tiny.context)
    writer.add_embedding_length(tiny.width)
    writer.add_block_count(tiny.layers)
    writer.add_feed_forward_length(tiny.width)
    writer.add_head_count(heads)
    writer.add_head_count_kv(shared)
    writer.add_rope_dimension_count(tiny.width // heads)
    writer.add_layer_norm_rms_eps(1e-5)
    narrow = tiny.width // heads * shared
    shapes = {"attn_q": tiny.width, "attn_k": narrow, "attn_v": narrow, "attn_output": tiny.width}
    shapes |= {"ffn_gate": tiny.width, "ffn_up": tiny.width, "ffn_down": tiny.width}
    return _layers(tiny, shapes)


def _layers(tiny: Tiny, shapes: Mapping[str, int]) -> Tensors:
    random = np.random.default_rng(tiny.seed + 1)
    for layer in range(tiny.layers):
        for norm in ("attn_norm", "ffn_norm"):
            yield f"blk.{layer}.{norm}.weight", np.ones(tiny.width, np.float32)
        for name, rows in shapes.items():
            scale = 1.5 / np.sqrt(tiny.width)
            yield f"blk.{layer}.{name}.weight", random.normal(0, scale, (rows, tiny.width)).astype(np.float32)


def _mamba(writer: gguf.GGUFWriter, tiny: Tiny) -> Tensors:
    inner, state, kernel, rank = 2 * tiny.width, 16, 4, 4
    writer.add_context_length(tiny.context)
    writer.add_embedding_length(tiny.width)
    writer.add_block_count(tiny.layers)
    writer.add_feed_forward_length(0)
    writer.add_head_count(0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_ssm_conv_kernel(kernel)
    writer.add_ssm_inner_size(inner)
    writer.add_ssm_state_size(state)
    writer.add_ssm_time_step_rank(rank)
    shapes: dict[str, tuple[int, ...]] = {
        "ssm_in.weight": (2 * inner, tiny.width),
        "ssm_conv1d.weight": (inner, kernel),
        "ssm_conv1d.bias": (inner,),
        "ssm_x.weight": (rank + 2 * state, inner),
        "ssm_dt.weight": (inner, rank),
        "ssm_dt.bias": (inner,),
        "ssm_d": (inner,),
        "ssm_out.weight": (tiny.width, inner),
    }
    return _mamba_layers(tiny, shapes, -np.ones((inner, state), np.float32))


def _mamba_layers(tiny: Tiny, shapes: Mapping[str, tuple[int, ...]], decay: NDArray[np.float32]) -> Tensors:
    random = np.random.default_rng(tiny.seed + 1)
    for layer in range(tiny.layers):
        yield f"blk.{layer}.attn_norm.weight", np.ones(tiny.width, np.float32)
        yield f"blk.{layer}.ssm_a", decay
        for name, shape in shapes.items():
            yield f"blk.{layer}.{name}", random.normal(0, 0.1, shape).astype(np.float32)
