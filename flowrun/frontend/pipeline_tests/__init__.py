"""Files of tests (`*.test.yaml`): their keys, and their reading into values that know their places."""
