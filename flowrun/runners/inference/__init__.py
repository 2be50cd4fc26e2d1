"""What a source could be declared as, from a sample of its data: `samples` → `value_types` and `event_time` → `declaration`."""
