"""Tiny models with quantised matrices, written by the gguf package."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
from gguf import GGMLQuantizationType, GGUFValueType, quants

from tests.tiny_model import write_tiny_model


def write_quantised(path: Path, kind: GGMLQuantizationType) -> Path:
    """The tiny llama with its matrices in `kind`, and a value of every sort among the metadata."""
    reader = gguf.GGUFReader(write_tiny_model(path.with_suffix(".f32")))
    writer = gguf.GGUFWriter(path, "llama")
    copy_fields(reader, writer)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q4_1)
    for number, sort in enumerate(GGUFValueType):
        if sort not in (GGUFValueType.ARRAY, GGUFValueType.STRING):
            value = float(number) if "FLOAT" in sort.name else number % 2
            writer.add_key_value(f"test.{sort.name}", value, sort)
            writer.add_key_value(f"test.array.{sort.name}", [value] * 3, GGUFValueType.ARRAY, sort)
    for tensor in reader.tensors:
        if len(tensor.shape) == 2:
            writer.add_tensor(tensor.name, quants.quantize(np.array(tensor.data), kind), raw_dtype=kind)
        else:
            writer.add_tensor(tensor.name, np.array(tensor.data))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def copy_fields(reader: gguf.GGUFReader, writer: gguf.GGUFWriter) -> None:
    for name, field in reader.fields.items():
        if not name.startswith("GGUF.") and name != "general.architecture":
            sub = field.types[-1] if field.types[0] == GGUFValueType.ARRAY else None
            writer.add_key_value(name, field.contents(), field.types[0], sub)
