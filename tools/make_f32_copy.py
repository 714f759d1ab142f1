#!/usr/bin/env python3
"""Writes an F32 copy of a GGUF model: every tensor dequantised to F32, every other key kept (value, type and order).

usage: make_f32_copy.py MODEL.gguf COPY.gguf

Only general.file_type changes (to 0, all F32). Tensor order and dimensions stay. The copy is what exact comparisons with other
programs use: it removes their integer arithmetic on quantised rows, and leaves only the order of F32 additions.
Made and tested with Python 3.11, gguf 0.19.0, numpy 2.4.
"""
import os
import sys

import numpy as np
from gguf import GGMLQuantizationType, GGUFReader, GGUFValueType, GGUFWriter
from gguf.quants import dequantize

# Written by GGUFWriter itself: the header's fields and the architecture; the alignment is its default.
WRITTEN_BY_WRITER = ("GGUF.version", "GGUF.tensor_count", "GGUF.kv_count", "general.architecture", "general.alignment")


def to_f32(tensor):
    if tensor.tensor_type in (GGMLQuantizationType.F32, GGMLQuantizationType.F16):
        return np.asarray(tensor.data, dtype=np.float32)
    # Row-major with the quantised bytes of a row innermost; dequantize gives the same shape with the values innermost.
    return dequantize(tensor.data, tensor.tensor_type)


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__.split("\n\n")[1])
    source, target = sys.argv[1:]
    reader = GGUFReader(source)
    writer = GGUFWriter(target, reader.fields["general.architecture"].contents())
    for key, field in reader.fields.items():
        if key in WRITTEN_BY_WRITER:
            continue
        value = 0 if key == "general.file_type" else field.contents()
        kind = field.types[0]
        writer.add_key_value(key, value, kind, sub_type=field.types[-1] if kind == GGUFValueType.ARRAY else None)
    for tensor in reader.tensors:
        # Header only: the data follow one tensor at a time, so that no second model lies in memory.
        shape = [int(n) for n in reversed(tensor.shape)]
        writer.add_tensor_info(tensor.name, shape, np.dtype(np.float32), 4 * int(tensor.n_elements))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for tensor in reader.tensors:
        data = np.ascontiguousarray(to_f32(tensor))
        assert data.size == tensor.n_elements, tensor.name
        writer.write_tensor_data(data)
    writer.close()
    print(f"{target}: {len(reader.tensors)} tensors, {os.path.getsize(target)} bytes")


if __name__ == "__main__":
    main()
