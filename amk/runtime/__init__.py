"""Running an artifact: sessions over a machine, which is a GPU or the CPU runtime."""
