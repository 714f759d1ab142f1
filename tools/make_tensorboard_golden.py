#!/usr/bin/env python3
"""Makes tests/formats/goldens/events.out.tfevents.golden with the tensorboard package's own protocol buffers and record writer.

    python3 tools/make_tensorboard_golden.py     (needs tensorboard)
"""
import pathlib

from tensorboard.compat.proto import event_pb2, summary_pb2, tensor_pb2, types_pb2
from tensorboard.summary.writer.record_writer import RecordWriter

path = pathlib.Path(__file__).parent.parent / "tests/formats/goldens/events.out.tfevents.golden"
with open(path, "wb") as file:
    writer = RecordWriter(file)
    writer.write(event_pb2.Event(wall_time=1.7e9, file_version="brain.Event:2").SerializeToString())
    tensor = tensor_pb2.TensorProto(dtype=types_pb2.DT_STRING, string_val=[b"rank 16"])
    tensor.tensor_shape.dim.add(size=1)
    metadata = summary_pb2.SummaryMetadata(plugin_data=summary_pb2.SummaryMetadata.PluginData(plugin_name="text"),
                                           data_class=summary_pb2.DATA_CLASS_TENSOR)
    event = event_pb2.Event(wall_time=1.7e9, step=1)
    event.summary.value.add(tag="configuration", tensor=tensor, metadata=metadata)
    writer.write(event.SerializeToString())
    event = event_pb2.Event(wall_time=1700000001.5, step=300)
    event.summary.value.add(tag="loss/train", simple_value=2.5)
    event.summary.value.add(tag="step/learning_rate", simple_value=1e-4)
    writer.write(event.SerializeToString())
print(path, path.stat().st_size, "bytes")
