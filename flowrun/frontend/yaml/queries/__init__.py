"""SQL composed of the parts of a step, and bound as queries."""
