"""OVER: each row with what the rows before it in its partition amount to."""
