"""Between a program and its machine: signals, files that are written whole or not at all, memory that runs out."""
