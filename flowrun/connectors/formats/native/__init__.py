"""The parts in C, which are built where there is a C compiler; `build.py` builds them, and the modules that load them say what they do."""
