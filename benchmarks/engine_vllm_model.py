"""Writes a GGUF file of the llama architecture as a Hugging Face folder in bf16, which vLLM can load.

    .venv/bin/python -m benchmarks.engine_vllm_model MODEL.gguf FOLDER

vLLM reads no GGUF by itself, and a folder cannot be fetched without a network: so quantised weights are expanded, and
the tokenizer is written from the vocabulary and the merges that the file holds. Byte-level BPE only.
"""

from __future__ import annotations

import argparse
import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGUFReader, ReaderTensor, dequantize
from numpy.typing import NDArray

NORMAL, CONTROL, USER_DEFINED = 1, 3, 4
"""Kinds of token, as `tokenizer.ggml.token_type` numbers them."""

OUTER = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}
INNER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
"""llama.cpp's names of tensors to those of `LlamaForCausalLM`."""

SPLIT_DIGITS = frozenset({"smollm", "starcoder", "refact", "command-r"})
"""The pre-tokenizers (llama.cpp's names) that are byte-level with each digit on its own."""


class Gguf:
    """The metadata of one file, by key."""

    def __init__(self, path: Path) -> None:
        self._reader = GGUFReader(path)
        architecture = self["general.architecture"]
        if architecture != "llama" or self["tokenizer.ggml.model"] != "gpt2":
            raise SystemExit(f"{path.name}: only llama models with a byte-level vocabulary can be written")

    def __getitem__(self, key: str) -> Any:
        return self._reader.fields[key].contents()

    def get(self, key: str, default: Any = None) -> Any:
        return self[key] if key in self._reader.fields else default

    @property
    def tensors(self) -> list[ReaderTensor]:
        return list(self._reader.tensors)


def model_config(file: Gguf) -> dict[str, Any]:
    heads = file["llama.attention.head_count"]
    width = file["llama.embedding_length"]
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "torch_dtype": "bfloat16",
        "hidden_act": "silu",
        "hidden_size": width,
        "intermediate_size": file["llama.feed_forward_length"],
        "num_hidden_layers": file["llama.block_count"],
        "num_attention_heads": heads,
        "num_key_value_heads": file.get("llama.attention.head_count_kv", heads),
        "head_dim": file.get("llama.attention.key_length", width // heads),
        "max_position_embeddings": file["llama.context_length"],
        "rms_norm_eps": float(file["llama.attention.layer_norm_rms_epsilon"]),
        "rope_theta": float(file.get("llama.rope.freq_base", 10_000.0)),
        "vocab_size": len(file["tokenizer.ggml.tokens"]),
        "tie_word_embeddings": all(tensor.name != "output.weight" for tensor in file.tensors),
        "bos_token_id": file["tokenizer.ggml.bos_token_id"],
        "eos_token_id": file["tokenizer.ggml.eos_token_id"],
    }


def tokenizer(file: Gguf) -> dict[str, Any]:
    """`tokenizer.json`."""
    tokens, kinds = file["tokenizer.ggml.tokens"], file["tokenizer.ggml.token_type"]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    digits = {"type": "Digits", "individual_digits": True}
    splitters = [digits, byte_level] if file.get("tokenizer.ggml.pre") in SPLIT_DIGITS else [byte_level]
    added = [
        {"id": at, "content": token, "special": kind == CONTROL, "normalized": False}
        | {"single_word": False, "lstrip": False, "rstrip": False}
        for at, (token, kind) in enumerate(zip(tokens, kinds, strict=True))
        if kind in (CONTROL, USER_DEFINED)
    ]
    return {
        "version": "1.0",
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": splitters},
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "vocab": {token: at for at, token in enumerate(tokens)},
            "merges": file["tokenizer.ggml.merges"],
        },
    }


def tokenizer_config(file: Gguf) -> dict[str, Any]:
    tokens = file["tokenizer.ggml.tokens"]
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": tokens[file["tokenizer.ggml.bos_token_id"]],
        "eos_token": tokens[file["tokenizer.ggml.eos_token_id"]],
        "chat_template": file["tokenizer.chat_template"],
        "clean_up_tokenization_spaces": False,
        "model_max_length": file["llama.context_length"],
    }


def weights(file: Gguf, config: dict[str, Any]) -> Iterator[tuple[str, NDArray[np.float32]]]:
    """Each tensor by its Hugging Face name, rows first."""
    heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
    for tensor in file.tensors:
        parts = tensor.name.removesuffix(".weight").split(".")
        values = dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        if parts[0] == "blk":
            name = f"model.layers.{parts[1]}.{INNER[parts[2]]}"
            values = unpermute(values, heads[parts[2]]) if parts[2] in heads else values
        elif parts[0] in OUTER:
            name = OUTER[parts[0]]
        else:
            raise SystemExit(f"the tensor {tensor.name} has no place in a Hugging Face llama model")
        yield f"{name}.weight", values


def unpermute(values: NDArray[np.float32], heads: int) -> NDArray[np.float32]:
    """llama.cpp keeps the two halves that rotate together side by side; Hugging Face keeps them apart."""
    rows, columns = values.shape
    return values.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)


def bf16(values: NDArray[np.float32]) -> bytes:
    """The upper half of each float, rounded to nearest, ties to even."""
    bits = np.ascontiguousarray(values).view(np.uint32)
    return bytes(((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2").tobytes())


def write_safetensors(path: Path, tensors: Iterator[tuple[str, NDArray[np.float32]]]) -> None:
    """The format: length of the header, header in JSON, data in the header's order."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    data: list[bytes] = []
    at = 0
    for name, values in tensors:
        data.append(bf16(values))
        header[name] = {"dtype": "BF16", "shape": list(values.shape), "data_offsets": [at, at + len(data[-1])]}
        at += len(data[-1])
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(head)) + head)
        file.writelines(data)


def write_folder(source: Path, folder: Path) -> None:
    file = Gguf(source)
    config = model_config(file)
    folder.mkdir(parents=True, exist_ok=True)
    documents = {
        "config.json": config,
        "generation_config.json": {key: config[key] for key in ("bos_token_id", "eos_token_id")},
        "tokenizer.json": tokenizer(file),
        "tokenizer_config.json": tokenizer_config(file),
    }
    for name, document in documents.items():
        (folder / name).write_text(json.dumps(document, ensure_ascii=False), encoding="utf-8")
    write_safetensors(folder / "model.safetensors", weights(file, config))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="the GGUF file")
    parser.add_argument("folder", type=Path, help="where to write; made if need be")
    arguments = parser.parse_args()
    write_folder(arguments.model, arguments.folder)


if __name__ == "__main__":
    main()
