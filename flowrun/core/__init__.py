"""Types, schemas, elements, clocks and options: what every layer speaks."""
