#!/usr/bin/env python3
"""Reads an event file with the tensorboard package and prints what it holds.

    pip install tensorboard
    python3 tools/check_tensorboard.py tests/formats/goldens/events.out.tfevents.golden
    python3 tools/check_tensorboard.py OUT/tensorboard/events.out.tfevents.patina
"""
import sys

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

accumulator = EventAccumulator(sys.argv[1], size_guidance={"scalars": 0, "tensors": 0})
accumulator.Reload()
for tag in accumulator.Tags()["scalars"]:
    events = accumulator.Scalars(tag)
    steps = [event.step for event in events]
    print(f"{tag}: {len(events)} values, steps {steps[0]} to {steps[-1]}, {'each once' if len(set(steps)) == len(steps) else 'NOT EACH ONCE'}, "
          f"last {events[-1].value:g}")
for tag in accumulator.Tags()["tensors"]:
    for event in accumulator.Tensors(tag):
        print(f"{tag} at step {event.step}: {event.tensor_proto.string_val[0].decode()[:100]}")
