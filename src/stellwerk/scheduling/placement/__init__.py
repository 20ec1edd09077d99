"""Where a workload could stand: units and cells for every part of an option, together or not at all."""
