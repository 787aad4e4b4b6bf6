"""Faults that are planted into running replicas, so that what is meant to notice them can be seen to do so.

`python -m tests.support.sabotage FAULT …` is `lorafleet up` with replicas that have these faults; `REPLICA:FAULT` is
for one of them. Production code knows nothing of it.
"""
